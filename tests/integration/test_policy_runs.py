"""d3pg and impala in whole runs: the same across a kill, evaluated, loaded, and with the defaults of their preset."""

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import aql
from aql import agents, cli, metrics, runs
from aql.actions import ActionSpace
from aql.agents.base import EnvSpec
from aql.presets import preset
from aql.runtime import checkpoint, local

TINY: dict[str, Any] = {
    "actors": 4,
    "steps": 720,
    "critic_layers": (8,),
    "proposal_layers": (8,),
    "replay_capacity": 150,
    "batch_size": 5,
    "updates_per_call": 2,
    "unroll_length": 3,
    "eval_every": 10_000,
    "eval_episodes": 2,
    "checkpoint_every": 364,
    "log_every": 8,
}
RUNS: dict[str, dict[str, Any]] = {
    "d3pg": {"env": "toy/bandit-continuous", "random_steps": 40, "replayed_per_new": 2},
    "impala": {"env": "toy/chain"},
    "impala-gaussian": {"env": "toy/bandit-hybrid", "memory_size": 4, "see_last_action": True},
}


def _contents(run: Path) -> dict[str, Any]:
    """Of everything in the newest checkpoint but its times."""
    arrays, meta = checkpoint.load_latest(run)
    meta.pop("seconds")
    meta["result"] = meta["result"][:-1]
    named = {f"{group}/{name}": leaf for group, leaves in arrays.items() for name, leaf in leaves.items()}
    return named | {"meta": np.array(json.dumps(meta, sort_keys=True))}


def _rows(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in metrics.read(run)]


@pytest.mark.parametrize("agent", RUNS)
def test_a_run_across_a_kill_is_the_same_and_can_be_evaluated(agent: str, tmp_path: Path, capsys: Any) -> None:
    run, resumed = tmp_path / "run", tmp_path / "resumed"
    config = preset("fast", agent=agent, **(TINY | RUNS[agent]))
    runs.create(run, config)
    local.train(config, run, quiet=True)
    shutil.copytree(run, resumed)
    folder = checkpoint.latest(resumed)
    assert folder is not None
    shutil.rmtree(folder)  # as if it had been killed on its way to the last checkpoint
    before = checkpoint.latest(resumed)
    assert before is not None
    assert int(before.name) == 364
    local.train(runs.read_config(resumed), resumed, resume=True, quiet=True)
    ours, theirs = _contents(run), _contents(resumed)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(leaf, theirs[name]) for name, leaf in ours.items())
    assert _rows(run) == _rows(resumed)
    learned = [row for row in _rows(run) if "policy_loss" in row]
    assert learned[-1]["updates"] > 10
    assert cli.main(["eval", str(run), "--episodes", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["agent"], facts["episodes"], facts["actor_steps"]) == (agent, 3, 720)


def test_the_command_starts_from_what_the_agent_needs(tmp_path: Path) -> None:
    tiny = ["--steps", "64", "--actors", "4", "--batch-size", "4", "--critic-layers", "8", "--proposal-layers", "8"]
    run = tmp_path / "run"
    arguments = ["toy/chain", "--agent", "impala", *tiny, "--eval-episodes", "2", "--out", str(run), "--quiet"]
    assert cli.main(["train", *arguments]) == 0
    config, expected = runs.read_config(run), preset("fast", agent="impala")
    assert config.batch_size == 4
    for name in ("unroll_length", "replayed_per_new", "lambda_", "random_steps"):
        assert getattr(config, name) == getattr(expected, name)


def test_the_command_says_why_d3pg_takes_no_choices(capsys: Any) -> None:
    assert cli.main(["train", "toy/bandit-hybrid", "--agent", "d3pg"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sub-action 0 is a choice among 4" in line
    assert "gradient" in line
    assert "use the agent `aql`" in line


def test_d3pg_takes_no_integers_either() -> None:
    space = ActionSpace.from_gymnasium(gymnasium.spaces.Box(0, 3, (2,), np.int32))
    with pytest.raises(aql.UserError, match="sub-action 0 is a choice among 4"):
        agents.make(preset("fast", agent="d3pg"), EnvSpec((3,), space))


@pytest.mark.parametrize("agent", RUNS)
def test_in_python(agent: str, tmp_path: Path) -> None:
    settings = {name: value for name, value in (TINY | RUNS[agent]).items() if name not in ("env", "steps")}
    model = aql.AQL(RUNS[agent]["env"], agent=agent, **settings).learn(160, progress=False)
    shape = model._env.observations.shape
    observation = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    model.save(tmp_path / "model")
    loaded = aql.load(tmp_path / "model")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.predict(observation), model.predict(observation))
    greedy, explored = (np.asarray(model.predict(observation, deterministic=d)) for d in (True, False))
    assert greedy.shape == explored.shape
