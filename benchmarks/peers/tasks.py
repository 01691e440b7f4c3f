"""What the peers learn on, as Gymnasium environments that need nothing of `aql`."""

import math
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIZES = (7, 7, 3, 3, 2, 2, 2)  # of the sub-actions of a first-person game


class Control(gymnasium.Env):
    """A task of the DeepMind Control Suite, as `walker-walk`: all observations in one vector, no action repeat."""

    def __init__(self, name: str) -> None:
        self._domain, _, self._task = name.partition("-")
        self._env = self._load(seed=0)
        length = sum(math.prod(spec.shape) for spec in self._env.observation_spec().values())
        action = self._env.action_spec()
        self.observation_space = spaces.Box(-np.inf, np.inf, (length,), np.float32)
        self.action_space = spaces.Box(action.minimum.astype(np.float32), action.maximum.astype(np.float32))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode; some tasks draw their model from the seed, so that one loads the task again."""
        if seed is not None:
            self._env = self._load(seed)
        return _flatten(self._env.reset()), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One control step. A time limit has discount 1: that is truncation."""
        step = self._env.step(action)
        terminated = step.last() and step.discount == 0
        return _flatten(step), float(step.reward), terminated, step.last() and not terminated, {}

    def _load(self, seed: int) -> Any:
        os.environ.setdefault("MUJOCO_GL", "off")  # nothing is drawn, and there may be no screen
        from dm_control import suite

        return suite.load(self._domain, self._task, task_kwargs={"random": seed})


def _flatten(step: Any) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in step.observation.values()]).astype(np.float32)


class Trivial(gymnasium.Env):
    """Random numbers that cost nothing: whoever acts here shows the speed of the agent alone."""

    observation_space = spaces.Box(-1, 1, (20,), np.float32)

    def __init__(self, action_space: spaces.Space) -> None:
        self.action_space = action_space
        self._steps = 0
        self._observation = np.zeros(20, np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode of 100 steps."""
        super().reset(seed=seed)
        self._steps = 0
        return self._observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Whatever is done."""
        self._steps += 1
        self._observation = self.np_random.uniform(-1, 1, 20).astype(np.float32)
        return self._observation, float(self._observation[0]), False, self._steps == 100, {}


def action_spaces() -> dict[str, spaces.Space]:
    """The same 3528 actions, as one list and as what they are made of; and a choice with a parameter."""
    return {
        "Discrete": spaces.Discrete(math.prod(SIZES)),
        "MultiDiscrete": spaces.MultiDiscrete(list(SIZES)),
        "Tuple": spaces.Tuple([spaces.Discrete(size) for size in SIZES]),
        "Dict": spaces.Dict({"move": spaces.Discrete(3), "by": spaces.Box(-1, 1, (1,), np.float32)}),
    }
