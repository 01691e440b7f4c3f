"""Gymnasium's vector environments, which step together already."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from aql.actions import ActionSpace
from aql.envs import observations
from aql.envs.base import TimeStep, no_masks
from aql.envs.serial import spread_seed
from aql.errors import UserError


class GymVector:
    """A `VectorEnv` of a Gymnasium one that resets on the step after the last, which is Gymnasium's default."""

    def __init__(self, env: gymnasium.vector.VectorEnv) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise UserError(f"{env} has autoreset_mode {mode}: make it with AutoresetMode.NEXT_STEP")
        self._env = env
        self.num_envs = env.num_envs
        self.action_space = ActionSpace.from_gymnasium(env.single_action_space)
        self.observations = observations.from_gymnasium(env.single_observation_space)
        self.observation_shape, self.observation_dtype = self.observations.shape, self.observations.dtype
        self._action: np.ndarray | None = None
        self._last = np.zeros(self.num_envs, bool)

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments, as a function of the seed alone if there is one."""
        self._action = None
        self._last = np.zeros(self.num_envs, bool)
        # Natively vectorised environments take one seed, not one for each.
        observation, info = self._env.reset(seed=None if seed is None else spread_seed(seed, 1)[0])
        ones = np.ones(self.num_envs, np.float32)
        first = np.ones(self.num_envs, bool)
        return TimeStep(self._observe(observation), 0 * ones, ones, first, ~first, self._masks(info, ~first))

    def send(self, action: np.ndarray) -> None:
        """Notes the actions [B, D]; the work is done in `receive`."""
        self._action = np.array(action)

    def receive(self) -> TimeStep:
        """Steps every environment; one whose episode is over starts the next."""
        assert self._action is not None, "receive without send"
        first = self._last
        # Leading axes stay in every leaf: just what Gymnasium calls a batch of actions.
        observation, reward, terminated, truncated, info = self._env.step(self.action_space.to_env(self._action))
        self._action = None
        terminated, truncated = terminated & ~first, truncated & ~first
        self._last = terminated | truncated
        reward = np.where(first, 0, reward).astype(np.float32)
        if not np.isfinite(reward).all():
            raise UserError(f"a reward is {reward[~np.isfinite(reward)][0]}: it must be a finite number")
        discount = 1 - terminated.astype(np.float32)
        observed, masks = self._observe(observation), self._masks(info, terminated)
        return TimeStep(observed, reward, discount, first, self._last.copy(), masks)

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()

    def _observe(self, observation: Any) -> np.ndarray:
        return self.observations.batch(observation)[0]

    def _masks(self, info: dict[str, Any], over: np.ndarray) -> np.ndarray:
        """[B, M] what each environment allows next; anything where an episode is over."""
        if "action_mask" not in info:
            return no_masks(self.num_envs)
        # Gymnasium stacks the masks of its environments, and nested ones leaf by leaf.
        everything = np.ones(int(np.sum(self.action_space.mask_sizes)), bool)
        rows = [_row(info["action_mask"], i) for i in range(self.num_envs)]
        return np.stack(
            [everything if done else self.action_space.mask_from_env(row) for row, done in zip(rows, over, strict=True)]
        )


def _row(masks: Any, i: int) -> Any:
    """The i-th of masks that were stacked, also inside of dicts and tuples."""
    if isinstance(masks, dict):
        return {name: _row(part, i) for name, part in masks.items() if not name.startswith("_")}
    return tuple(_row(part, i) for part in masks) if isinstance(masks, tuple) else masks[i]
