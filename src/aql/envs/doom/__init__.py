"""First-person mazes on Doom's engine, with pixels and 3528 actions: `doom/explore_goal_locations_small` and others.

Options are `action_set` (full or curated) and `resolution`: `doom/explore_goal_locations_tiny?action_set=curated`.
"""

import functools
from collections.abc import Callable

import gymnasium

from aql.envs import ids
from aql.envs.doom.levels import LEVELS, ExploreEnv
from aql.envs.gym import GymEnv
from aql.envs.serial import RenderedEnv
from aql.envs.threaded import ThreadedVector
from aql.errors import UserError, unknown

LEVEL_IDS = [f"doom/{name}" for name in LEVELS]
OPTIONS = ("action_set", "resolution")


class DoomVector(ThreadedVector):
    """A `VectorEnv` of levels, each with its own game process."""

    def __init__(self, levels: list[ExploreEnv], num_threads: int | None = None) -> None:
        super().__init__([GymEnv(level) for level in levels], num_threads)
        self.levels = levels

    @property
    def restarts(self) -> int:
        """How many game processes died and were replaced."""
        return sum(level.restarts for level in self.levels)


def make(env_id: str, num_envs: int, num_threads: int | None = None) -> DoomVector:
    """The vector for `doom/<level>`."""
    build = builder(env_id)
    return DoomVector([build() for _ in range(num_envs)], num_threads)


def make_rendered(env_id: str) -> RenderedEnv:
    """One level, filmed with the agent's own eyes."""
    return RenderedEnv(GymEnv(builder(env_id)(render_mode="rgb_array")))


def register() -> None:
    """Makes the levels known to Gymnasium, as `aql/ExploreGoalLocationsSmall-v0` and so on."""
    for name in LEVELS:
        camel = "".join(word.capitalize() for word in name.split("_"))
        gymnasium.register(f"aql/{camel}-v0", entry_point="aql.envs.doom:ExploreEnv", kwargs={"level": name})


def builder(env_id: str) -> Callable[..., ExploreEnv]:
    """What to call for one level."""
    name, options = ids.split(env_id)
    if name not in LEVEL_IDS:
        raise unknown("environment", name, LEVEL_IDS, "`aql envs` lists them all")
    for option in options:
        if option not in OPTIONS:
            raise unknown("option", option, OPTIONS, f"{name} has {' and '.join(OPTIONS)}")
    if not isinstance(options.get("resolution", 0), int):
        raise UserError(f"resolution is {options['resolution']}: expected a whole number of pixels")
    return functools.partial(ExploreEnv, name.removeprefix("doom/"), **options)
