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
from aql.errors import unknown

LEVEL_IDS = [f"doom/{name}" for name in LEVELS]
OPTIONS = ("action_set", "resolution")


def make(env_id: str, num_envs: int, num_threads: int | None = None) -> ThreadedVector:
    """The vector for `doom/<level>`, each with its own game process."""
    build = builder(env_id)
    return ThreadedVector([GymEnv(build()) for _ in range(num_envs)], num_threads)


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
    return functools.partial(ExploreEnv, name.removeprefix("doom/"), **options)
