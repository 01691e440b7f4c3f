"""Whole runs: the same twice, the same across a kill, and a folder that holds what it promises."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from aql import cli, metrics, runs
from aql.config import Config
from aql.errors import UserError
from aql.runtime import checkpoint, local

# Odd numbers, so that unrolls are left over in the queue when a checkpoint is written.
TINY: dict[str, Any] = {
    "env": "toy/chain",
    "agent": "aql",
    "actors": 4,
    "steps": 1600,
    "random_steps": 40,
    "critic_layers": (8,),
    "proposal_layers": (8,),
    "num_proposal": 2,
    "num_uniform": 2,
    "learner_num_proposal": 2,
    "learner_num_uniform": 1,
    "enumerate_small": False,
    "unroll_length": 3,
    "replayed_per_new": 2,
    "replay_capacity": 150,
    "batch_size": 5,
    "updates_per_call": 2,
    "greedy_averages": 2,
    "eval_every": 600,
    "eval_episodes": 2,
    "checkpoint_every": 404,
    "log_every": 8,
}


def _config(**settings: Any) -> Config:
    return Config(**(TINY | settings))


def _train(run: Path, **settings: Any) -> local.Result:
    config = _config(**settings)
    runs.create(run, config)
    return local.train(config, run, quiet=True)


def _command(*arguments: str, **options: Any) -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", "aql.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def _wait_for(what: Any, process: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)


def _last(run: Path) -> Path:
    folder = checkpoint.latest(run)
    assert folder is not None
    return folder


def _hashes(run: Path) -> dict[str, str]:
    """Of everything in the newest checkpoint but its times."""
    folder = _last(run)
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}
    _, meta = checkpoint.load(folder)
    meta.pop("seconds")
    meta["result"] = meta["result"][:-1]
    return found | {"meta": json.dumps(meta, sort_keys=True), "step": folder.name}


def _rows(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in metrics.read(run)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: Any) -> Any:
    """A run that nobody disturbed."""
    run = tmp_path_factory.mktemp("straight") / "run"
    result = _train(run)
    return run, result


# Determinism.


def test_the_same_seed_gives_the_same_run(straight: Any, tmp_path: Path) -> None:
    run, result = straight
    again = _train(tmp_path / "again")
    assert _hashes(tmp_path / "again") == _hashes(run)
    assert _rows(tmp_path / "again") == _rows(run)
    assert again._replace(seconds=0) == result._replace(seconds=0)


def test_another_seed_gives_another_run(straight: Any, tmp_path: Path) -> None:
    run, _ = straight
    _train(tmp_path / "other", seed=1)
    ours, theirs = _hashes(run), _hashes(tmp_path / "other")
    assert ours["agent.safetensors"] != theirs["agent.safetensors"]
    assert ours["replay.safetensors"] != theirs["replay.safetensors"]
    assert _rows(run) != _rows(tmp_path / "other")


KILLED = """
import os, signal, sys
from aql import cli
from aql.runtime import checkpoint

checkpoint.prune = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # what comes right after the first checkpoint
cli.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: Any) -> Path:
    """The same run, killed by SIGKILL after its first checkpoint and resumed by the command."""
    run = tmp_path_factory.mktemp("killed") / "run"
    runs.create(run, _config())
    killed = subprocess.run([sys.executable, "-c", KILLED, "train", "--resume", str(run)], check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    step = int(_last(run).name)
    assert 0 < step < TINY["steps"], "it was not killed on its way"
    with _command("train", "--resume", str(run)) as process:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert "return" in output.splitlines()[-1]
    return run


def test_a_killed_run_ends_with_the_same_checkpoint(straight: Any, killed: Path) -> None:
    assert _hashes(killed) == _hashes(straight[0])


def test_a_killed_run_learns_the_same(straight: Any, killed: Path) -> None:
    """What was learned and evaluated, wherever both runs say something."""
    ours, theirs = _rows(straight[0]), _rows(killed)
    assert [row["actor_steps"] for row in ours] == [row["actor_steps"] for row in theirs]
    for row, other in zip(ours, theirs, strict=True):
        for name in row.keys() & other.keys() - {"return_mean"}:
            assert row[name] == other[name], (name, row["actor_steps"])


def test_a_killed_run_writes_the_same_metrics(straight: Any, killed: Path) -> None:
    assert _rows(killed) == _rows(straight[0])


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    run, settings = tmp_path / "run", {"steps": 200, "checkpoint_every": 1000}
    _train(tmp_path / "straight", **settings)
    runs.create(run, _config(**settings))
    with metrics.MetricsWriter(run) as writer:
        writer.write(120, return_mean=7.0)  # what a killed process wrote
    local.train(_config(**settings), run, resume=True, quiet=True)
    assert _hashes(run) == _hashes(tmp_path / "straight")
    assert _rows(run) == _rows(tmp_path / "straight")


def test_a_real_task_across_a_kill(tmp_path: Path) -> None:
    """EnvPool cannot save its environments; the same run comes of it all the same."""
    run, resumed = tmp_path / "run", tmp_path / "resumed"
    settings = {"env": "control/cartpole-balance", "steps": 480, "checkpoint_every": 240, "eval_every": 1000}
    _train(run, **settings, eval_episodes=1)
    shutil.copytree(run, resumed)
    shutil.rmtree(_last(resumed))  # as if it had been killed on its way to the second checkpoint
    assert int(_last(resumed).name) == 240
    local.train(runs.read_config(resumed), resumed, resume=True, quiet=True)
    assert _hashes(resumed) == _hashes(run)
    ours, theirs = _rows(run), _rows(resumed)
    assert len(ours) == len(theirs)
    for row, other in zip(ours, theirs, strict=True):
        shared = row.keys() & other.keys()
        assert {name: row[name] for name in shared} == {name: other[name] for name in shared}


# Stopping.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_run_saves_and_can_go_on(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    runs.create(run, _config(steps=10**7, checkpoint_every=10**7, eval_every=10**7))
    with _command("train", "--resume", str(run)) as process:
        log = run / metrics.FILE
        _wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 5, process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert f"aql train --resume {run}" in " ".join(output.split())
    arrays, meta = checkpoint.load(_last(run))
    assert meta["actor_steps"] > 40
    assert {"agent", "replay"} <= arrays.keys()
    steps = meta["actor_steps"] + 80
    assert cli.main(["train", "--resume", str(run), "--steps", str(steps)]) == 0
    assert checkpoint.load(_last(run))[1]["actor_steps"] == steps


def test_a_run_that_is_stopped_while_it_reports_saves_too(tmp_path: Path, monkeypatch: Any) -> None:
    """Between the moment for a checkpoint and the end of the loop, where a run of three days would have been lost."""

    def interrupt(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(metrics.Progress, "update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path / "run", checkpoint_every=10**7)
    assert checkpoint.load(_last(tmp_path / "run"))[1]["actor_steps"] == 8  # two steps of four actors


def test_a_run_goes_on_when_nobody_listens_any_more(tmp_path: Path) -> None:
    """`aql train | head -1`: the pipe of the progress line is gone."""
    run = tmp_path / "run"
    runs.create(run, _config())
    with _command("train", "--resume", str(run)) as process:
        assert "toy/chain" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(300) == 0, process.stderr.read()
    assert int(_last(run).name) == TINY["steps"]


def test_a_run_is_trained_by_one_process(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    _train(run)
    with runs.alone_in(run):
        assert cli.main(["train", "--resume", str(run), "--steps", "3000"]) == 2
    assert f"{run} is being trained by another process" in capsys.readouterr().err
    assert runs.read_config(run).steps == TINY["steps"]


def test_an_agent_that_is_lost_does_not_replace_a_sound_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(UserError, match=r"is (nan|inf) after .* updates.*--learning_rate.*its last checkpoint is kept"):
        _train(run, learning_rate=1e30, checkpoint_every=8)
    arrays, _ = checkpoint.load(_last(run))
    assert all(np.isfinite(leaf).all() for leaf in arrays["agent"].values())


def test_a_resumed_run_keeps_the_source_that_began_it(tmp_path: Path, monkeypatch: Any) -> None:
    run, config = tmp_path / "run", _config()
    for commit in ("one", "one", "two", "two", "three"):
        monkeypatch.setattr(runs, "commit", lambda commit=commit: commit)
        runs.write_config(run, config) if run.exists() else runs.create(run, config)
    facts = json.loads((run / "config.json").read_text())
    assert facts["commit"] == "one"
    assert [source["commit"] for source in facts["resumed_by"]] == ["two", "three"]
    assert facts["resumed_by"][0]["versions"] == facts["versions"]


def test_a_resumed_run_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    run = tmp_path / "run"
    runs.create(run, _config())
    runs.write_config(run, _config(steps=3000))
    assert runs.read_config(run).steps == 3000


def test_a_run_of_another_version_is_named(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    runs.create(run, _config())
    facts = json.loads((run / "config.json").read_text())
    facts["config"]["growth"] = 1
    (run / "config.json").write_text(json.dumps(facts | {"commit": "0123456789ab"}))
    assert cli.main(["train", "--resume", str(run)]) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert all(
        words in errors for words in (f"{run}/config.json was written by another aql (0123456789ab)", "'growth'")
    )


SLOW_ENV = """
import os, pathlib, time
import gymnasium, numpy

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.steps += 1
        time.sleep(float(os.environ["SECONDS"]))
        if self.steps == 6:  # training ends before
            pathlib.Path("evaluating").touch()
        return numpy.zeros(1, numpy.float32), 1.0, False, self.steps == 500, {}
"""


def test_a_run_that_is_stopped_in_an_evaluation_does_not_play_it_to_its_end(tmp_path: Path) -> None:
    """500 steps of half a second; the run that goes on catches up on the evaluation."""
    run = tmp_path / "run"
    (tmp_path / "slow.py").write_text(SLOW_ENV)
    runs.create(run, _config(env="slow:Slow", actors=1, steps=4, eval_every=4, eval_episodes=1, log_every=4))
    found = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with _command("train", "--resume", str(run), cwd=tmp_path, env=found | {"SECONDS": "0.5"}) as process:
        _wait_for((tmp_path / "evaluating").exists, process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert checkpoint.load(_last(run))[1]["actor_steps"] == 4
    assert not any("eval_return_mean" in row for row in metrics.read(run))
    with _command("train", "--resume", str(run), cwd=tmp_path, env=found | {"SECONDS": "0"}) as process:
        output, _ = process.communicate(timeout=300)
    assert "return 500.0 +- 0.0 over 1 greedy" in " ".join(output.split())


def test_signals_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    _train(tmp_path / "run", steps=80)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


# The folder.


def test_the_folder_of_a_run(straight: Any) -> None:
    run, result = straight
    facts = json.loads((run / "config.json").read_text())
    assert Config.from_json(facts["config"]) == _config()
    assert {"aql", "jax", "jaxlib", "flax", "optax", "numpy"} <= facts["versions"].keys()
    assert "commit" in facts
    assert facts["commit"] is None or len(facts["commit"].removesuffix("-dirty")) == 12
    rows = metrics.read(run)
    assert all(isinstance(row["actor_steps"], int) and row["seconds"] >= 0 for row in rows)
    assert [row["actor_steps"] for row in rows] == sorted(row["actor_steps"] for row in rows)
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    learned = [row for row in rows if "critic_loss" in row]
    assert len(learned) > 100
    wanted = {"return_mean", "updates", "critic_loss", "q_mean", "share_from_proposal", "proposal_entropy"}
    assert all(wanted <= row.keys() for row in learned)
    assert all(0 <= row["share_from_proposal"] <= 1 for row in learned)
    assert any(0 < row["share_from_proposal"] < 1 for row in learned)
    evaluated = [row for row in rows if "eval_return_mean" in row]
    assert [row["actor_steps"] for row in evaluated] == [600, 1200, 1600]
    assert all(row["eval_episodes"] == 2 for row in evaluated)
    assert evaluated[-1]["eval_return_mean"] == result.mean
    assert evaluated[-1]["eval_return_std"] == result.std
    assert result.actor_steps == 1600
    assert sorted(f.name for f in (run / "checkpoints").iterdir()) == ["000000001212", "000000001600"]
    (events,) = run.glob("events.out.tfevents*")
    for name in (b"critic_loss", b"return_mean", b"eval_return_mean"):
        assert name in events.read_bytes()


def test_the_numbers_of_updates_are_those_of_the_unrolls(straight: Any) -> None:
    # 400 decisions, the first 10 random. Decisions 13, 16, ..., 400 complete unrolls, 4 * (1 + 2) with the replayed
    # ones. The last of these 130 sets waits for the next step: 12 * 129 // 10 calls of 2 updates.
    rows = [row for row in metrics.read(straight[0]) if "updates" in row]
    assert rows[-1]["updates"] == 2 * (12 * 129 // 10)


def test_the_paper_preset_reports_where_its_actions_come_from(tmp_path: Path) -> None:
    """Also without a fresh search in the learner: the actors' search is the one to watch then."""
    run = tmp_path / "run"
    _train(run, fresh_search=False, steps=200, checkpoint_every=1000)
    learned = [row for row in metrics.read(run) if "critic_loss" in row]
    assert all("proposal_entropy" in row for row in learned)
    assert all("share_from_proposal" in row for row in learned)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    runs.create(tmp_path / "run", _config())  # an empty one is fine
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(UserError, match="exists and is not overwritten"):
        runs.create(tmp_path / "run", _config(seed=1))
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="exists"):
        runs.create(tmp_path / "file", _config())


def test_a_finished_run_can_be_extended(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    _train(run, steps=160, eval_every=1000, checkpoint_every=1000)
    before = metrics.read(run)
    assert cli.main(["train", "--resume", str(run)]) == 0  # nothing left to do
    assert metrics.read(run) == before
    assert "after 160 steps" in capsys.readouterr().out.splitlines()[-1]
    assert cli.main(["train", "--resume", str(run), "--steps", "320"]) == 0
    assert "after 320 steps" in capsys.readouterr().out.splitlines()[-1]
    rows = metrics.read(run)
    assert rows[: len(before)] == before
    assert rows[-1]["actor_steps"] == 320
    assert rows[-1]["seconds"] > before[-1]["seconds"]
    assert int(_last(run).name) == 320


def test_an_extension_is_written_down(tmp_path: Path) -> None:
    """Or a run that was extended, killed and resumed would end where it was first meant to."""
    run = tmp_path / "run"
    _train(run, steps=160, checkpoint_every=1000)
    assert cli.main(["train", "--resume", str(run), "--steps", "240"]) == 0
    assert runs.read_config(run).steps == 240


def test_restore_acts_like_the_run(tmp_path: Path) -> None:
    from aql import envs
    from aql.evaluation import Evaluator

    run = tmp_path / "run"
    result = _train(run, env="toy/bandit-hybrid", steps=160, eval_every=1000, checkpoint_every=80, eval_episodes=16)
    restored = runs.restore(run)
    assert restored.config == runs.read_config(run)
    assert restored.actor_steps == 160
    evaluator = Evaluator(restored.agent, envs.make("toy/bandit-hybrid", 16), seed=0)
    evaluator.restart(80)  # the run restarted its evaluations at its first checkpoint
    returns = evaluator.evaluate(restored.params)
    assert float(returns.mean()) == result.mean
    assert float(returns.std()) == result.std


def test_tests_use_one_thread() -> None:
    assert os.environ["PJRT_NPROC"] == "1"


class Trap(gymnasium.Env):
    """Holds for 30 steps: longer than the actors' episodes here, shorter than those of an evaluation."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps > 30:
            raise RuntimeError("the floor gave way")
        return np.ones(2, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("eval_every", [80, 10**9])
def test_an_error_in_an_evaluation_costs_no_step(tmp_path: Path, eval_every: int) -> None:
    run = tmp_path / "run"
    with pytest.raises(RuntimeError, match="the floor gave way") as caught:
        _train(run, env=f"{__name__}:Trap", steps=80, eval_every=eval_every, checkpoint_every=10**9)
    assert "the agent as of step 80 is kept" in caught.value.__notes__[0]
    _, meta = checkpoint.load_latest(run)
    assert meta["actor_steps"] == 80
