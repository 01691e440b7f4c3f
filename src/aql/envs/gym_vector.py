"""Gymnasium's vector environments, which step together already."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from aql import nested
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
        self._env: Any = env
        self.num_envs = env.num_envs
        self.action_space = ActionSpace.from_gymnasium(env.single_action_space)
        self.observations = observations.from_gymnasium(env.single_observation_space)
        self._action: np.ndarray | None = None
        self._last = np.zeros(self.num_envs, bool)
        self._steps = 0  # since the last reset of all
        self._masked: bool | None = None  # known from the first reset
        self._asks = hasattr(env, "call") and all(env.call("has_wrapper_attr", "action_masks"))

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments, as a function of the seed alone if there is one."""
        self._action = None
        self._steps = 0
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
        self._steps += 1
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
        if "action_mask" in info:
            # Gymnasium stacks the masks of its environments, and nested ones leaf by leaf.
            stacked = _without_presence(info["action_mask"])
            rows = [nested.row(stacked, i) for i in range(self.num_envs)]
            given = info.get("_action_mask", np.ones(self.num_envs, bool))
        elif self._asks:
            rows, given = list(self._env.call("action_masks")), np.ones(self.num_envs, bool)
        else:
            rows, given = [], np.zeros(self.num_envs, bool)
        if self._masked is None:
            self._masked = bool(given.any())
        if not self._masked and not given.any():
            return no_masks(self.num_envs)
        everything = np.ones(int(np.sum(self.action_space.mask_sizes)), bool)
        return np.stack([everything if over[i] else self._mask(rows, given, i) for i in range(self.num_envs)])

    def _mask(self, rows: list[Any], given: np.ndarray, i: int) -> np.ndarray:
        """[M] what environment i allows next."""
        where = f"in environment {i}, {self._steps} steps after the reset"
        if not self._masked or not given[i]:
            raise UserError(
                f"there is {'an' if given[i] else 'no'} action mask {where}: environments that mask must all do so, "
                "at every reset and every step"
            )
        try:
            return self.action_space.mask_from_env(rows[i])
        except UserError as error:
            raise UserError(f"{error} ({where})") from error


def _without_presence(masks: Any) -> Any:
    """Nested masks without the entries in which Gymnasium tells which environments gave them."""
    if not isinstance(masks, dict):
        return masks
    return {name: _without_presence(part) for name, part in masks.items() if not name.startswith("_")}
