"""What the runtime asks of environments: a vector of them, stepped together, that reset themselves."""

from typing import NamedTuple, Protocol

import numpy as np

from aql.actions import ActionSpace


class TimeStep(NamedTuple):
    """What B environments show at one time. All arrays own their memory: the caller may keep them.

    The step after a `last` one ignores its action and starts the next episode (`first`): that pair of steps
    is not a transition. Reward and discount belong to the action before; they mean nothing where `first`.
    """

    observation: np.ndarray  # [B, *observation_shape]
    reward: np.ndarray  # [B] float32
    discount: np.ndarray  # [B] float32, 0 at a true termination only: a time limit has discount 1
    first: np.ndarray  # [B] bool
    last: np.ndarray  # [B] bool


class VectorEnv(Protocol):
    """B independent environments."""

    num_envs: int
    action_space: ActionSpace
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments.

        With a seed, what follows is a function of the seed alone, whatever came before; this may be slow. Without
        one, the environments' own random streams go on.
        """
        ...

    def send(self, action: np.ndarray) -> None:
        """Starts a step with the actions [B, D] of `action_space` and returns without waiting for it."""
        ...

    def receive(self) -> TimeStep:
        """Waits for the step that `send` started."""
        ...

    def close(self) -> None:
        """Frees what the environments hold. Closing twice does nothing."""
        ...
