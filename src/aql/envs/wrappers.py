"""Vectors of environments that behave a little differently."""

from typing import Any

import numpy as np

from aql.envs.base import TimeStep, VectorEnv
from aql.errors import UserError


class Wrapper:
    """A `VectorEnv` that does what another one does. What else that one offers, it offers too."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.num_envs = env.num_envs
        self.action_space = env.action_space
        self.observations = env.observations

    def __getattr__(self, name: str) -> Any:
        """Success, restarts, pictures."""
        return getattr(self._env, name)

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments."""
        return self._env.reset(seed)

    def send(self, action: np.ndarray) -> None:
        """Starts a step."""
        self._env.send(action)

    def receive(self) -> TimeStep:
        """Waits for the step."""
        return self._env.receive()

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


class Repeated(Wrapper):
    """Holds each action for `times` steps and adds up what they earn.

    Where an episode begins or ends in one of the environments the action ends with it, in all of them.
    """

    def __init__(self, env: VectorEnv, times: int) -> None:
        super().__init__(env)
        self._times = times
        self._action = np.empty(0)

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes; refuses environments with masks, where a held action may become a forbidden one."""
        now = super().reset(seed)
        if now.mask.shape[-1]:
            raise UserError(
                f"action_repeat is {self._times} and the environment masks actions: what is allowed changes from step "
                "to step, use action_repeat 1"
            )
        return now

    def send(self, action: np.ndarray) -> None:
        """Starts the first of the steps; `receive` takes the others."""
        self._action = np.asarray(action)
        super().send(self._action)

    def receive(self) -> TimeStep:
        """Waits for all steps."""
        now = super().receive()
        for _ in range(self._times - 1):
            if now.first.any() or now.last.any():
                break
            super().send(self._action)
            then = super().receive()
            now = then._replace(reward=now.reward + then.reward)
        return now


class Finite(Wrapper):
    """Raises where its environments return NaN or infinity, before a replay holds it."""

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes."""
        return _checked(super().reset(seed))

    def receive(self) -> TimeStep:
        """Waits for the step."""
        return _checked(super().receive())


def _checked(now: TimeStep) -> TimeStep:
    for name in ("observation", "reward", "discount"):
        values: Any = getattr(now, name)
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)][0]
            raise UserError(
                f"the environment returned {bad} in its {name}: expected finite numbers; mend the environment"
            )
    return now
