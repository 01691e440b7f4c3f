"""Suites, cells and hashes by their literal values; the scheduling with processes that only pretend to train."""

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from aql import cli, runs, sweep
from aql.config import Config
from aql.errors import UserError
from aql.presets import preset
from aql.sweep import results, runner, suites

SUITE = """
name = "two"
description = "two toys"
agents = ["aql", "uniform"]
seeds = 2
steps = 1000
tasks = [
  { env = "toy/chain", group = "short" },
  { env = "toy/bandit-hybrid", group = "wide", steps = 2000, settings = { gamma = 0.5 } },
]
[settings]
gamma = 0.9
learning_rate = 1
"""

# Writes what a run of two evaluations leaves behind, or fails, as its last argument says.
PRETEND = """
import json, pathlib, sys
run, config, resume, fate = sys.argv[1:]
run, config = pathlib.Path(run), json.loads(config)
with open(run.parent / "starts", "a") as file:
    file.write(f"{run.name} {'resume' if resume == 'True' else 'begin'}\\n")
run.mkdir(exist_ok=True)
(run / "config.json").write_text(json.dumps({"config": config, "commit": "abc"}))
rows = [{"actor_steps": config["steps"] // 2, "seconds": 1.5, "eval_return_mean": 1, "eval_return_std": 0.25}]
if fate == "fails":
    print("a warning\\nthe last word", file=sys.stderr)
else:
    rows.append({"actor_steps": config["steps"], "seconds": 3, "eval_return_mean": 2, "eval_return_std": 0.5})
    rows[-1]["eval_success_mean"] = 0.75
(run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
sys.exit(3 if fate == "fails" else 0)
"""


@pytest.fixture
def suite(tmp_path: Path) -> sweep.Suite:
    (tmp_path / "two.toml").write_text(SUITE)
    return sweep.load(str(tmp_path / "two.toml"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Replaces training; the cells that are put into the set fail."""
    names: set[str] = set()

    def launch(cell: sweep.Cell, resume: bool, core: int, lock: int) -> subprocess.Popen[bytes]:
        cell.run.parent.mkdir(parents=True, exist_ok=True)
        fate = "fails" if str(cell) in names else "works"
        arguments = [str(cell.run), json.dumps(cell.config.to_json()), str(resume), fate]
        with cell.run.with_name(cell.run.name + ".log").open("wb") as log:
            return subprocess.Popen([sys.executable, "-c", PRETEND, *arguments], stderr=log)

    monkeypatch.setattr(runner, "_launch", launch)
    monkeypatch.setattr(runner.Runner, "POLL", 0.01)
    return names


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def starts(out: Path) -> list[str]:
    return sorted(
        f"{path.parent.relative_to(out)} {line}"
        for path in out.rglob("starts")
        for line in path.read_text().split("\n")
        if line
    )


class TestSuites:
    def test_cells_are_literal(self, suite: sweep.Suite) -> None:
        cells = sweep.expand(suite, Path("out"))
        assert [(str(cell), cell.config.steps, cell.config.gamma, str(cell.run)) for cell in cells] == [
            ("toy/chain aql s0", 1000, 0.9, "out/toy_chain/aql/s0"),
            ("toy/chain uniform s0", 1000, 0.9, "out/toy_chain/uniform/s0"),
            ("toy/bandit-hybrid aql s0", 2000, 0.5, "out/toy_bandit-hybrid/aql/s0"),
            ("toy/bandit-hybrid uniform s0", 2000, 0.5, "out/toy_bandit-hybrid/uniform/s0"),
            ("toy/chain aql s1", 1000, 0.9, "out/toy_chain/aql/s1"),
            ("toy/chain uniform s1", 1000, 0.9, "out/toy_chain/uniform/s1"),
            ("toy/bandit-hybrid aql s1", 2000, 0.5, "out/toy_bandit-hybrid/aql/s1"),
            ("toy/bandit-hybrid uniform s1", 2000, 0.5, "out/toy_bandit-hybrid/uniform/s1"),
        ]

    @pytest.mark.parametrize("chosen", ["toy/bandit-hybrid", "bandit-hybrid", "wide"])
    def test_selection(self, suite: sweep.Suite, chosen: str) -> None:
        few = sweep.select(suite, ["exact"], [chosen], seeds=1, steps=7, settings={"gamma": 0.75})
        (cell,) = sweep.expand(few, Path("out"))
        assert (str(cell), cell.config.steps, cell.config.gamma) == ("toy/bandit-hybrid exact s0", 7, 0.75)

    def test_shipped_suites(self) -> None:
        control39 = sweep.load("control39")
        groups = [task.group for task in control39.tasks]
        assert [groups.count(name) for name in ("low", "medium", "high")] == [17, 15, 7]
        assert {task.steps for task in control39.tasks} == {1_000_000}
        mini = sweep.expand(sweep.load("control-mini"), Path("out"))
        assert len(mini) == 9 * 3 * 3
        assert {(cell.config.agent, cell.config.steps) for cell in mini} == {
            ("aql", 100_000),
            ("d3pg", 100_000),
            ("impala", 300_000),
        }
        assert {cell.config.env for cell in mini} <= {task.env for task in control39.tasks}
        foundation = sweep.load("foundation")
        assert foundation.agents == ("aql", "aql-independent", "aql-gaussian", "uniform", "qtopt")
        assert len(sweep.expand(foundation, Path("out"))) == 3 * 5 * 3
        for name in sweep.shipped():
            suites.check_names(sweep.load(name))

    def test_agents_of_single_tasks(self) -> None:
        hybrid = sweep.load("hybrid")
        cells = sweep.expand(hybrid, Path("out"))
        exact = {cell.config.env for cell in cells if cell.config.agent == "exact"}
        assert exact == {"hybrid/moving", "hybrid/sliding", "hybrid/platform"}  # allocation has too many actions
        assert hybrid.all_agents == ("aql", "aql-independent", "uniform", "qtopt", "exact")
        assert len(cells) == len({cell.run for cell in cells}) == 3 * (4 * 4 + 3)
        only = sweep.select(hybrid, ["aql"])
        assert {cell.config.agent for cell in sweep.expand(only, Path("out"))} == {"aql"}

    def test_settings_of_one_agent_go_before_the_tasks_and_after_the_commands(self, tmp_path: Path) -> None:
        (tmp_path / "two.toml").write_text(SUITE + "[agent_settings.uniform]\ngamma = 1\nsteps = 30\n")
        suite = sweep.load(str(tmp_path / "two.toml"))

        def runs(suite: sweep.Suite) -> list[tuple[str, int, float]]:
            configs = [cell.config for cell in sweep.expand(suite, Path("out"))]
            return [(config.agent, config.steps, config.gamma) for config in configs]

        one = sweep.select(suite, seeds=1)
        assert runs(one) == [("aql", 1000, 0.9), ("uniform", 30, 1.0), ("aql", 2000, 0.5), ("uniform", 30, 1.0)]
        changed = sweep.select(one, tasks=["wide"], steps=7, settings={"gamma": 0.75})
        assert runs(changed) == [("aql", 7, 0.75), ("uniform", 7, 0.75)]

    def test_impala_learns_on_policy_in_the_doom_suite(self) -> None:
        cells = sweep.expand(sweep.load("doom"), Path("out"))
        maze = "doom/explore_goal_locations_tiny?resolution=42"
        assert [(cell.config.env, cell.config.agent) for cell in cells if cell.config.seed == 0] == [
            *((maze, agent) for agent in ("aql", "exact", "impala")),
            (f"{maze}&action_set=curated", "aql"),
        ]
        configs = {cell.config.agent: cell.config for cell in cells}
        own, impala = preset("fast", agent="impala"), configs["impala"]
        for name in ("actors", "unroll_length", "replayed_per_new", "replay_capacity", "batch_size"):
            assert getattr(impala, name) == getattr(own, name)
        assert impala.gamma == configs["aql"].gamma == 0.98
        assert configs["aql"].unroll_length == configs["exact"].unroll_length == 5

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ("nmae = 'x'", "unknown key 'nmae': did you mean name"),
            ("name = 'x'\ntasks = ['toy/chain']\nagents = ['aql']", "toy/chain has no steps"),
            ("name = 'x'\nsteps = 9\ntasks = ['toy/chain', 'toy/chain']\nagents = ['aql']", "toy/chain is in suite x"),
            ("name = 'x'\nsteps = 9\ntasks = ['toy/chain']\nagents = ['aql']\npreset = 'fats'", "did you mean fast"),
            ("name = 'x'\nsteps = 'many'", "steps is 'many', expected int"),
            (
                "name = 'x'\nsteps = 9\ntasks = ['toy/chain']\nagents = ['aql']\n[agent_settings]\naql = 1",
                "expected dict",
            ),
            ("name = ", "is not TOML"),
        ],
    )
    def test_mistakes_in_a_file(self, tmp_path: Path, wrong: str, message: str) -> None:
        (tmp_path / "x.toml").write_text(wrong)
        with pytest.raises(UserError, match=message):
            sweep.load(str(tmp_path / "x.toml"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["control93"], "unknown suite 'control93': did you mean control39"),
            (["foundation", "--agents", "aql,unifrom"], "unknown agent 'unifrom': did you mean uniform"),
            (["foundation", "--tasks", "walker-wakl"], "unknown task 'walker-wakl': did you mean walker-walk"),
            (["foundation", "--set", "gama=1"], "unknown setting 'gama': did you mean gamma"),
            (["foundation", "--set", "batch_size=big"], "batch_size is 'big': expected int"),
            (["foundation", "--set", "seed=1"], "seed is not a setting of a sweep"),
            (["foundation", "--set", "gamma"], "--set gamma: expected KEY=VALUE"),
            (["foundation", "--seeds", "0"], "seeds is 0"),
            (["foundation", "--steps", "0"], "steps is 0"),
        ],
    )
    def test_mistakes_are_one_line_and_code_2(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        assert cli.main(["sweep", *arguments, "--dry-run"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1

    def test_settings_of_an_unknown_agent(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "two.toml").write_text(SUITE + "[agent_settings.unifrom]\ngamma = 1\n")
        assert cli.main(["sweep", str(tmp_path / "two.toml"), "--dry-run"]) == 2
        assert (
            capsys.readouterr().err == "aql: unknown agent 'unifrom': did you mean uniform? `aql agents` lists them\n"
        )

    def test_settings_have_the_types_of_the_config(self) -> None:
        pairs = ["gamma=1", "critic_layers=[8, 8]", "epsilon-spacing=tenth", "layer_norm=False", "batch_size=4"]
        assert sweep.parse_settings(pairs) == {
            "gamma": 1.0,
            "critic_layers": (8, 8),
            "epsilon_spacing": "tenth",
            "layer_norm": False,
            "batch_size": 4,
        }

    @pytest.mark.parametrize("agent", ["uniform", "impala"])
    def test_the_command_gives_the_config(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, agent: str) -> None:
        # impala changes the preset, and a sweep may change it back: 2 replayed unrolls are the preset's own number.
        changed: dict[str, Any] = {"lambda_": 0.5, "critic_layers": (8, 9), "layer_norm": False, "steps": 12}
        changed |= {"replayed_per_new": 2}
        config = preset("paper", env="toy/chain", agent=agent, seed=3, pessimism=0.5, **changed)
        made: list[Config] = []

        def create(run: Path, config: Config) -> None:
            made.append(config)
            raise UserError("enough")

        monkeypatch.setattr(runs, "create", create)
        assert cli.main(runner.train_command(sweep.Cell(config, "", tmp_path / "run"), resume=False)) == 2
        assert made == [config]


class TestHash:
    def test_stable_across_processes(self) -> None:
        code = "from aql import presets, sweep; print(sweep.config_hash(presets.preset('fast', gamma=0.5)))"
        environment = os.environ | {"PYTHONHASHSEED": "1"}
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert told.stdout.strip() == sweep.config_hash(preset("fast", gamma=0.5))
        assert len(told.stdout.strip()) == 12

    def test_sensitive_to_every_setting_but_the_names(self) -> None:
        base = sweep.config_hash(Config())
        other: dict[str, Any] = {"env": "toy/chain", "agent": "exact", "preset": "paper", "seed": 5, "steps": 7}
        assert sweep.config_hash(dataclasses.replace(Config(), **other)) == base
        changed = {"gamma": 0.5, "layer_norm": False, "critic_layers": (256, 255), "eval_episodes": 11}
        hashes = {sweep.config_hash(dataclasses.replace(Config(), **{k: v})) for k, v in changed.items()}  # type: ignore[arg-type]
        assert len(hashes | {base}) == 5


class TestRunning:
    def test_a_finished_cell_is_never_run_again(self, suite: sweep.Suite, tmp_path: Path, failing: set[str]) -> None:
        out = tmp_path / "out"
        few = sweep.select(suite, seeds=1)
        assert sweep.run(few, out, jobs=2, console=quiet()) == {}
        assert len(starts(out)) == 4
        assert sweep.run(suite, out, jobs=2, console=quiet()) == {}
        assert sweep.run(suite, out, jobs=2, console=quiet()) == {}
        assert starts(out) == [
            f"{task}/{agent} s{seed} begin"
            for task in ("toy_bandit-hybrid", "toy_chain")
            for agent in ("aql", "uniform")
            for seed in (0, 1)
        ]

    def test_a_failure_stops_nothing_and_is_tried_again(
        self, suite: sweep.Suite, tmp_path: Path, failing: set[str]
    ) -> None:
        out, few = tmp_path / "out", sweep.select(suite, seeds=1)
        failing.add("toy/chain aql s0")
        console = quiet()
        log = out / "toy_chain/aql/s0.log"
        words = f"the last word (exit code 3, {log})"
        assert sweep.run(few, out, jobs=1, console=console) == {"toy/chain aql s0": words}
        assert isinstance(console.file, io.StringIO)
        assert f"FAILED   toy/chain aql s0  {words}" in console.file.getvalue()
        assert len(starts(out)) == 4
        failing.clear()
        assert sweep.run(few, out, jobs=1, console=quiet()) == {}
        assert [line for line in starts(out) if line.startswith("toy_chain/aql")] == [
            "toy_chain/aql s0 begin",
            "toy_chain/aql s0 resume",
        ]

    def test_results_are_literal(self, suite: sweep.Suite, tmp_path: Path, failing: set[str]) -> None:
        out = tmp_path / "out"
        failing.add("toy/chain uniform s0")
        sweep.run(sweep.select(suite, tasks=["chain"], seeds=1), out, jobs=2, console=quiet())
        assert sorted(path.name for path in out.iterdir()) == [".lock", "results.csv", "sweep.json", "toy_chain"]
        digest = sweep.config_hash(preset("fast", env="toy/chain", gamma=0.9, learning_rate=1.0))
        assert (out / "results.csv").read_text() == (
            "suite,task,agent,preset,seed,actor_steps,seconds,return,return_std,success,commit,config_hash\n"
            f"two,toy/chain,aql,fast,0,500,1.5,1,0.25,,abc,{digest}\n"
            f"two,toy/chain,aql,fast,0,1000,3,2,0.5,0.75,abc,{digest}\n"
        )
        # Cells of an earlier call stay in.
        sweep.run(sweep.select(suite, agents=["exact"], tasks=["chain"], seeds=1), out, jobs=2, console=quiet())
        lines = (out / "results.csv").read_text().splitlines()
        assert [line.split(",")[2] for line in lines[1:]] == ["aql", "aql", "exact", "exact"]

    def test_changed_settings_are_refused(self, suite: sweep.Suite, tmp_path: Path, failing: set[str]) -> None:
        out, few = tmp_path / "out", sweep.select(suite, ["aql"], ["chain"], seeds=1)
        sweep.run(few, out, console=quiet())
        for changed in (sweep.select(few, settings={"gamma": 0.8}), sweep.select(few, steps=999)):
            with pytest.raises(UserError, match=r"has other settings \((gamma was 0.9, is 0.8|steps was 1000, is 999)"):
                sweep.run(changed, out, console=quiet())
        with pytest.raises(UserError, match="has the sweep of suite two, not three"):
            sweep.run(dataclasses.replace(few, name="three"), out, console=quiet())
        assert len(starts(out)) == 1

    def test_more_steps_go_on_from_where_it_ended(self, suite: sweep.Suite, tmp_path: Path, failing: set[str]) -> None:
        out, few = tmp_path / "out", sweep.select(suite, ["aql"], ["chain"], seeds=1)
        sweep.run(few, out, console=quiet())
        longer = sweep.select(few, steps=3000)
        (cell,) = sweep.expand(longer, out)
        assert runner.train_command(cell, resume=True) == ["train", "--resume", str(cell.run), "--steps", "3000"]
        sweep.run(longer, out, console=quiet())
        assert starts(out) == ["toy_chain/aql s0 begin", "toy_chain/aql s0 resume"]
        assert [line.split(",")[5] for line in (out / "results.csv").read_text().splitlines()[1:]] == ["1500", "3000"]

    def test_a_config_cut_short_by_a_kill_is_begun_anew(
        self, suite: sweep.Suite, tmp_path: Path, failing: set[str]
    ) -> None:
        out, few = tmp_path / "out", sweep.select(suite, ["aql"], ["chain"], seeds=1)
        run = out / "toy_chain/aql/s0"
        run.mkdir(parents=True)
        (run / "config.json").write_text('{"config": {"en')
        assert sweep.run(few, out, console=quiet()) == {}
        assert starts(out) == ["toy_chain/aql s0 begin"]

    def test_one_sweep_per_folder(self, suite: sweep.Suite, tmp_path: Path, failing: set[str]) -> None:
        with (
            results.lock_folder(tmp_path, quiet()),
            pytest.raises(UserError, match=rf"in use by another sweep \(process {os.getpid()}\)"),
        ):
            sweep.run(suite, tmp_path, console=quiet())
        assert starts(tmp_path) == []

    def test_dry_run_touches_nothing(
        self, suite: sweep.Suite, tmp_path: Path, failing: set[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        arguments = ["sweep", str(tmp_path / "two.toml"), "--seeds", "1", "--out", str(out), "--jobs", "2"]
        assert cli.main([*arguments, "--dry-run"]) == 0
        assert not out.exists()
        told = capsys.readouterr().out
        assert "4 cells, 0 finished; 6,000 steps to go: about 0:04 with 2 at a time, assuming 700 steps/s" in told
        assert "run      toy/chain aql s0  1,000 steps" in told
        assert cli.main([*arguments, "--agents", "aql"]) == 0
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        capsys.readouterr()
        assert cli.main([*arguments, "--dry-run"]) == 0
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
        # Each task took 3 s with aql, so it will with uniform.
        told = capsys.readouterr().out
        assert "4 cells, 2 finished; 3,000 steps to go: about 0:03 with 2 at a time, as measured" in told

    def test_the_table(self, suite: sweep.Suite, tmp_path: Path, failing: set[str]) -> None:
        failing.add("toy/chain uniform s1")
        file = io.StringIO()
        console = Console(file=file, width=100, height=40, force_terminal=True, color_system=None)
        sweep.run(suite, tmp_path / "out", jobs=2, console=console)
        lines = file.getvalue().splitlines()
        assert [line.split() for line in lines if "toy/" in line][-2:] == [
            ["│toy/chain", "│", "2", "2", "│", "2", "failed│"],
            ["│toy/bandit-hybrid", "│", "2", "2", "│", "2", "2", "│"],
        ]
        assert "7/8 cells finished, 0 running, 1 failed, 95 %" in "".join(lines[-3:])


def test_time_left() -> None:
    def cell(env: str, seed: int) -> sweep.Cell:
        return sweep.Cell(Config(env=env, seed=seed, steps=100), "", Path(f"{env}{seed}"))

    fresh = results.State()
    assert runner.seconds_left({cell("a", 0): fresh}, 1) is None
    states = {cell("a", 0): results.State(50, 10.0), cell("a", 1): fresh, cell("b", 0): fresh}
    # 0.2 s a step: 10 + 20 + 20 s of work.
    assert runner.seconds_left(states, 1) == pytest.approx(50.0)
    assert runner.seconds_left(states, 4) == pytest.approx(20.0)  # a cell cannot be split
