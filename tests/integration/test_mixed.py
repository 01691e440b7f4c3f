"""Observations with images and numbers, from the environment to the film: with every kind of agent."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

import aql
from aql.cli import main

TINY: dict[str, Any] = {
    "actors": 2,
    "critic_layers": (8,),
    "proposal_layers": (8,),
    "embedding_size": 4,
    "random_steps": 10,
    "batch_size": 8,
    "eval_episodes": 2,
    "eval_every": 10**6,
}


class Robot(gymnasium.Env):
    """Two cameras, one with its channels first, and what the joints say."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own way)
    observation_space = spaces.Dict(
        camera=spaces.Box(0, 255, (3, 8, 9), np.uint8),
        depth=spaces.Box(0, 255, (6, 6, 1), np.uint8),
        joints=spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-np.inf, np.inf, (2,), np.float64)]),
    )
    action_space: Any = spaces.Dict(grip=spaces.Discrete(2), torque=spaces.Box(-1, 1, (2,)))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._observe(), float(self.np_random.uniform()), False, self._steps == 5, {}

    def render(self) -> Any:
        return np.zeros((64, 64, 3), np.uint8)

    def _observe(self) -> dict[str, Any]:
        camera, depth = (self.np_random.integers(0, 256, s, np.uint8) for s in ((3, 8, 9), (6, 6, 1)))
        joints = (self.np_random.integers(1, 4), 100 * self.np_random.normal(size=2))
        return {"camera": camera, "depth": depth, "joints": joints}


class Arm(Robot):
    """The same with continuous actions alone."""

    action_space: Any = spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize(
    ("agent", "env", "settings"),
    [
        ("aql", Robot, {"memory_size": 4, "see_last_action": True}),
        ("impala", Robot, {"unroll_length": 4, "batch_size": 2, "updates_per_call": 1}),
        ("d3pg", Arm, {}),
        ("aql", gymnasium.vector.SyncVectorEnv([Robot, Robot]), {}),
    ],
    ids=["aql", "impala", "d3pg", "vector"],
)
def test_agents_learn_predict_and_come_back(agent: str, env: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    model = aql.AQL(env, agent=agent, **TINY | settings)
    model.learn(60, progress=False)
    assert model._trainer.learner.updates > 0
    single: Any = env if isinstance(env, type) else Robot
    rows = [single().reset(seed=seed)[0] for seed in range(2)]
    stacked: Any = gymnasium.vector.utils.create_empty_array(Robot.observation_space, 2)
    batch: Any = gymnasium.vector.utils.concatenate(Robot.observation_space, rows, stacked)
    model.save(tmp_path / "model")
    again = aql.load(tmp_path / "model", env)
    for observation in (rows[0], batch):
        chosen, same = model.predict(observation, first=True), again.predict(observation, first=True)
        assert data_equivalence(chosen, same)
    assert single.action_space.contains(model.predict(rows[0], first=True))
    with pytest.raises(aql.UserError, match="in part 'depth', an observation has shape"):
        model.predict(rows[0] | {"depth": np.zeros((6, 6), np.uint8)})
    model.close()
    again.close()


def test_the_command_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{__name__}:Robot", "--steps", "30"]) == 0
    told = capsys.readouterr().out
    assert "becomes an image (8, 9, 3) and an image (6, 6, 1) and 5 numbers" in told
    assert "image 0 0 to 255, image 1 0 to 255, numbers -" in told


@pytest.mark.parametrize(("agent", "env"), [("aql", "Robot"), ("impala", "Robot"), ("d3pg", "Arm")])
def test_the_command_trains_resumes_films_and_reports(agent: str, env: str, tmp_path: Path) -> None:
    run, page = tmp_path / "run", tmp_path / "report.html"
    tiny = ["--actors", "2", "--critic_layers", "8", "--proposal_layers", "8", "--embedding_size", "4"]
    tiny += ["--random_steps", "10", "--batch_size", "8", "--eval_episodes", "1", "--eval_every", "1000"]
    assert main(["train", f"{__name__}:{env}", "--agent", agent, "--steps", "40", "--out", str(run), *tiny]) == 0
    assert main(["train", "--resume", str(run), "--steps", "60"]) == 0
    assert main(["watch", str(run), "-o", str(tmp_path / "film.mp4")]) == 0
    assert (tmp_path / "film.mp4").stat().st_size > 1000
    assert main(["report", str(run), "-o", str(page)]) == 0
    assert agent in page.read_text()
