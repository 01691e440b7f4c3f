"""Single environments stepped one after the other behind the vector interface."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from aql.actions import ActionSpace
from aql.envs.base import TimeStep
from aql.envs.observations import Observations
from aql.errors import UserError

EVERYTHING = np.ones(0, bool)  # the mask of an environment without masks


class Outcome(NamedTuple):
    """What one step of one environment led to, or how its episode begins."""

    observation: np.ndarray
    reward: float = 0.0
    discount: float = 1.0  # 0 at a true termination only
    last: bool = False
    mask: np.ndarray = EVERYTHING  # [M] bool, see `TimeStep`
    success: float = math.nan  # 1 or 0 at the end of an episode, if the environment says whether it reached its goal


class SingleEnv(Protocol):
    """One environment, as Gymnasium and dm_control adapters present it."""

    action_space: ActionSpace
    observations: Observations

    def reset(self, seed: int | None) -> Outcome:
        """Starts an episode, as a function of the seed alone; None goes on with the old stream."""
        ...

    def step(self, action: np.ndarray) -> Outcome:
        """One step with the action [D] of `action_space`."""
        ...

    def close(self) -> None:
        """Frees what the environment holds."""
        ...


class RenderableEnv(SingleEnv, Protocol):
    """One environment that can be looked at."""

    @property
    def steps_per_second(self) -> float:
        """How fast it goes when it is watched."""
        ...

    @property
    def action_names(self) -> Sequence[str]:
        """[D] what a person calls the sub-actions."""
        ...

    def render(self, height: int, width: int) -> np.ndarray:
        """The present state as RGB, uint8 [H, W, 3]."""
        ...


def spread_seed(seed: int, num_envs: int) -> list[int]:
    """One seed per environment, in int32 and well mixed: env 1 of seed 0 is not env 0 of seed 1."""
    return [int(word >> 1) for word in np.random.SeedSequence(seed).generate_state(num_envs)]


class SerialVector:
    """A `VectorEnv` of B single environments that share their spaces."""

    def __init__(self, envs: Sequence[SingleEnv]) -> None:
        self._envs = list(envs)
        self.num_envs = len(self._envs)
        self.action_space = self._envs[0].action_space
        self.observations = self._envs[0].observations
        self._action: np.ndarray | None = None
        self._last = np.zeros(self.num_envs, bool)
        self.success = np.full(self.num_envs, math.nan)  # [B] of the latest step, see `Outcome`

    @property
    def restarts(self) -> int | None:
        """How many processes of the environments died and were replaced; None if they have no processes."""
        counts = [getattr(env, "restarts", None) for env in self._envs]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments, as a function of the seed alone if there is one."""
        self._action = None
        seeds = [None] * self.num_envs if seed is None else spread_seed(seed, self.num_envs)
        outcomes = [env.reset(s) for env, s in zip(self._envs, seeds, strict=True)]
        return self._stack(outcomes, first=np.ones(self.num_envs, bool))

    def send(self, action: np.ndarray) -> None:
        """Notes the actions [B, D]; the work is done in `receive`."""
        self._action = np.array(action)

    def receive(self) -> TimeStep:
        """Steps every environment; one whose episode is over starts the next."""
        assert self._action is not None, "receive without send"
        first = self._last
        outcomes = [
            env.reset(None) if over else env.step(action)
            for env, over, action in zip(self._envs, first, self._action, strict=True)
        ]
        self._action = None
        return self._stack(outcomes, first)

    def close(self) -> None:
        """Closes every environment, once."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _stack(self, outcomes: list[Outcome], first: np.ndarray) -> TimeStep:
        observation, reward, discount, last, mask, success = zip(*outcomes, strict=True)
        self._last, self.success = np.array(last), np.array(success)
        if len({len(some) for some in mask}) > 1:
            raise UserError(
                f"the environments of a vector give action masks of {[len(some) for some in mask]} entries: all of "
                "them must mask, in the same way, or none"
            )
        return TimeStep(
            np.stack(observation).astype(self.observations.dtype, copy=False),
            np.array(reward, np.float32),
            np.array(discount, np.float32),
            first,
            self._last.copy(),
            np.stack(mask),
        )


class RenderedEnv(SerialVector):
    """A vector of one environment, with pictures, for films of a policy."""

    def __init__(self, env: RenderableEnv) -> None:
        super().__init__([env])
        self._renderable = env
        self.steps_per_second = env.steps_per_second
        self.action_names = list(env.action_names)

    def render(self, height: int = 480, width: int = 640) -> np.ndarray:
        """The present state as RGB, uint8 [H, W, 3]. Gymnasium environments choose their own size."""
        return self._renderable.render(height, width)
