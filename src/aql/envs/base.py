"""What the runtime asks of environments: a vector of them, stepped together, that reset themselves."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from aql.actions import ActionSpace
from aql.envs.observations import Observations


class TimeStep(NamedTuple):
    """What B environments show at one time. Environments give NumPy arrays that the caller may keep.

    The step after a `last` one ignores its action and starts the next episode (`first`): that pair of steps
    is not a transition. Reward and discount belong to the action before; they mean nothing where `first`.
    """

    observation: Any  # [B, *observations.shape]
    reward: Any  # [B] float32
    discount: Any  # [B] float32, 0 at a true termination only: a time limit has discount 1
    first: Any  # [B] bool
    last: Any  # [B] bool
    mask: Any  # [B, M] bool, what may be chosen now, see `ActionSpace.allowed`; M = 0 where all may


def no_masks(num_envs: int) -> np.ndarray:
    """[B, 0] the masks of environments that allow every action."""
    return np.ones((num_envs, 0), bool)


class VectorEnv(Protocol):
    """B independent environments."""

    num_envs: int
    action_space: ActionSpace
    observations: Observations

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
