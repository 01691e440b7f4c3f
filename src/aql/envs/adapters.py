"""Options of any Gymnasium id that make its spaces fit: `VizdoomDeathmatch-v1?bound=10&observe=screen`.

`bound` gives every unbounded action the interval [-bound, bound]; `observe` takes one part of a Dict observation, such
as its image. All other options go to the environment's constructor.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aql.errors import UserError, unknown
from aql.nested import UNLIMITED


def adapt(env: gymnasium.Env, bound: Any = None, observe: Any = None) -> gymnasium.Env:
    """The environment with the options applied."""
    if bound is not None:
        env = BoundedActions(env, bound)
    return env if observe is None else ObservedPart(env, observe)


class BoundedActions(gymnasium.Wrapper):
    """Limits the actions that have no limits. What is chosen within them reaches the environment as it is."""

    def __init__(self, env: gymnasium.Env, bound: Any) -> None:
        super().__init__(env)
        if not isinstance(bound, int | float) or not 0 < bound < UNLIMITED:
            raise UserError(f"bound is {bound!r}: expected a number above 0")
        self.action_space = _bounded(env.action_space, float(bound))


class ObservedPart(gymnasium.ObservationWrapper):
    """One part of a Dict observation."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict):
            raise UserError(f"observe is {name!r}, but the observation is {space}: only a Dict has parts")
        if name not in space.spaces:
            raise unknown("part of the observation", name, space.spaces, f"it has {', '.join(space.spaces)}")
        self._name = name
        self.observation_space = space[name]

    def observation(self, observation: Any) -> Any:
        """The part."""
        return observation[self._name]


def _bounded(space: gymnasium.Space, bound: float) -> gymnasium.Space:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _bounded(child, bound) for name, child in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_bounded(child, bound) for child in space.spaces])
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low = np.where(space.low < -UNLIMITED, -bound, space.low)
        high = np.where(space.high > UNLIMITED, bound, space.high)
        return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)
    return space
