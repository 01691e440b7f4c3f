"""The command: what it prints, and what it says to those who err."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aql import cli, runs
from aql.agents import AGENTS
from aql.config import Config

TINY = [
    *("--steps", "96", "--actors", "4", "--random-steps", "16", "--batch-size", "8", "--updates-per-call", "1"),
    *("--critic-layers", "8", "--proposal-layers", "8", "--eval-episodes", "2", "--log-every", "16"),
    *("--num-critics", "1", "--replay-capacity", "100"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> Path:
    run = tmp_path_factory.mktemp("cli") / "run"
    assert cli.main(["train", "toy/bandit-discrete", *TINY, "--seed", "3", "--out", str(run)]) == 0
    return run


def _fails(capsys: Any, *arguments: str) -> str:
    """The one line that the command says on its way out."""
    code = cli.main(list(arguments))
    output, errors = capsys.readouterr()
    assert code == 2
    assert output == ""
    lines = errors.splitlines()
    assert len(lines) == 1, errors
    assert lines[0].startswith("aql: ")
    assert "Traceback" not in errors
    return str(lines[0])


# Errors.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tarin"], ["'tarin'", "train"]),
        (["train", "toy/chian"], ["'toy/chian'", "toy/chain"]),
        (["train", "toy/chain", "--agent", "alq"], ["'alq'", "aql"]),
        (["train", "toy/chain", "--preset", "papr"], ["'papr'", "paper"]),
        (["train", "toy/chain", "--preset=papr"], ["'papr'", "paper"]),
        (["train", "toy/chain", "--learning-rte", "1"], ["--learning-rte", "--learning-rate"]),
        (["train", "toy/chain", "--learning-rate", "fast"], ["learning-rate", "fast"]),
        (["train", "toy/chain", "--learning-rate", "-1"], ["learning_rate is -1"]),
        (["train", "toy/chain", "--steps", "0"], ["steps is 0", "at least 1"]),
        (["train", "toy/chain", "--steps", "many"], ["steps", "many"]),
        (["train", "toy/chain", "--epsilon-spacing", "linear"], ["epsilon-spacing", "linear"]),
        (["train", "toy/chain", "--steps"], ["steps"]),
        (["train", "toy/bandit-million", "--agent", "exact"], ["1e+06", "`aql`"]),
        (["train"], ["no environment", "aql envs"]),
        (["plot"], ["no runs", "aql train"]),
        (["report"], ["no runs", "aql train"]),
        (["train", "--steps", "100"], ["no environment", "aql envs"]),
        (["train", "--resume", "/nowhere/run"], ["/nowhere/run", "is not a run"]),
        (["eval", "/nowhere/run"], ["/nowhere/run", "is not a run"]),
        (["eval"], ["run", "aql eval --help"]),
        (["eval", "/nowhere/run", "--episods", "3"], ["--episods", "--episodes"]),
        (["eval", "/nowhere/run", "--episodes", "0"], ["episodes is 0"]),
        (["agents", "--all"], ["--all"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0] in ("train", "eval", "agents", "tarin") else "",
)
def test_errors_are_one_line_with_the_remedy(capsys: Any, arguments: list[str], words: list[str]) -> None:
    line = _fails(capsys, *arguments)
    for word in words:
        assert word in line, (word, line)


def test_a_failed_start_leaves_no_folder(capsys: Any, tmp_path: Path) -> None:
    _fails(capsys, "train", "toy/chian", "--out", str(tmp_path / "run"))
    _fails(capsys, "train", "toy/bandit-million", "--agent", "exact", "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_not_overwritten(capsys: Any, trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    line = _fails(capsys, "train", "toy/bandit-discrete", *TINY, "--out", str(trained))
    assert str(trained) in line
    assert "--resume" in line
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


@pytest.mark.parametrize(
    ("option", "value"), [("--learning-rate", "0.1"), ("--seed", "4"), ("--preset", "paper"), ("--out", "elsewhere")]
)
def test_a_resumed_run_keeps_its_settings(capsys: Any, trained: Path, option: str, value: str) -> None:
    for given in ([option, value], [f"{option}={value}"]):
        line = _fails(capsys, "train", "--resume", str(trained), *given)
        assert f"{option} cannot be changed in a resumed run" in line
    assert "--env" in _fails(capsys, "train", "toy/chain", "--resume", str(trained))
    assert "began with 0" in _fails(capsys, "train", "--resume", str(trained), "--workers", "2")


def test_a_damaged_config_is_named(capsys: Any, tmp_path: Path) -> None:
    runs.create(tmp_path, Config(env="toy/chain"))
    (tmp_path / "config.json").write_text("{")
    assert "config.json cannot be read" in _fails(capsys, "eval", str(tmp_path))


def test_a_run_without_a_checkpoint_cannot_be_evaluated(capsys: Any, tmp_path: Path) -> None:
    runs.create(tmp_path, Config(env="toy/chain"))
    assert "no intact checkpoint" in _fails(capsys, "eval", str(tmp_path))


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aql.cli", "train", "toy/chian", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "toy/chain" in done.stderr


# What it says when all is well.


def test_the_run_has_what_was_asked_for(trained: Path) -> None:
    config = runs.read_config(trained)
    assert (config.env, config.seed, config.steps, config.actors) == ("toy/bandit-discrete", 3, 96, 4)
    assert config.critic_layers == (8,)
    assert (config.preset, config.agent) == ("fast", "aql")


def test_a_preset_can_be_overridden(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = [*TINY, "--preset", "paper", "--unroll-length", "2", "--num-uniform", "3", "--fresh-search", "True"]
    assert cli.main(["train", "toy/chain", *options, "--out", str(run)]) == 0
    config = runs.read_config(run)
    assert (config.preset, config.unroll_length, config.num_uniform, config.fresh_search) == ("paper", 2, 3, True)
    assert (config.num_proposal, config.learning_rate, config.epsilon_spacing) == (100, 2e-4, "tenth")


def test_the_last_line_of_training_states_the_return(capsys: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.main(["train", "toy/time-limit", *TINY, "--out", str(run)]) == 0
    output, errors = capsys.readouterr()
    # Ten rewards of 1, whatever is done.
    assert re.search(r"toy/time-limit aql: return 10\.0 \+- 0\.0 over 2 .*after 96 steps", output.splitlines()[-1])
    assert str(run) in output.splitlines()[-1]
    assert errors == ""


def test_quiet_prints_the_last_line_alone(capsys: Any, tmp_path: Path) -> None:
    assert cli.main(["train", "toy/time-limit", *TINY, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_eval_states_the_return(capsys: Any, trained: Path) -> None:
    assert cli.main(["eval", str(trained), "--episodes", "5"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert re.search(r"toy/bandit-discrete aql: return \d+\.\d \+- \d+\.\d over 5 greedy episodes after 96 steps", line)


def test_eval_json(capsys: Any, trained: Path) -> None:
    def evaluate(*options: str) -> Any:
        assert cli.main(["eval", str(trained), "--json", *options]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return json.loads(line)

    found = evaluate("--episodes", "7")
    assert {"return_mean", "return_std", "episodes"} <= found.keys()
    assert (found["episodes"], found["env"], found["agent"]) == (7, "toy/bandit-discrete", "aql")
    assert found["actor_steps"] == 96
    assert 0 <= found["return_mean"] <= 1
    assert found["return_std"] > 0
    assert evaluate("--episodes", "7") == found
    assert evaluate("--episodes", "7", "--seed", "5")["return_mean"] != found["return_mean"]


def test_envs_lists_ids(capsys: Any) -> None:
    assert cli.main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"control/cartpole-swingup", "control/humanoid-walk", "toy/chain", "toy/bandit-million"} <= set(lines)
    assert all(re.fullmatch(r"[a-z]+/[\w-]+", line) for line in lines)


def test_agents_lists_every_agent(capsys: Any) -> None:
    assert cli.main(["agents"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(AGENTS)
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_usage_names_every_command(capsys: Any, arguments: list[str]) -> None:
    assert cli.main(arguments) == 0
    output = capsys.readouterr().out
    assert all(f"\n  {name}" in output for name in cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_every_command(capsys: Any, command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code in (0, None)
    output = capsys.readouterr().out
    assert f"aql {command}" in output
    if command == "train":
        assert "--learning-rate" in output
        assert "how actors spread" in " ".join(output.split())


def test_version(capsys: Any) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"aql \d+\.\d+\.\d+\n", capsys.readouterr().out)
