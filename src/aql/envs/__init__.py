"""Environments by id: `control/<domain>-<task>`, `doom/<level>`, `hybrid/<name>`, `toy/<name>`, any of Gymnasium's and
`package.module:factory`.

Some take options in the id, `doom/explore_goal_locations_small?action_set=curated`: see `ids` and `adapters`.
"""

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

from aql.config import Config
from aql.envs import control, doom, gym, hybrid, ids, toys
from aql.envs.base import TimeStep, VectorEnv
from aql.envs.doom import scenarios
from aql.envs.gym import Build, from_envs
from aql.envs.serial import RenderedEnv
from aql.envs.wrappers import Repeated
from aql.errors import UserError

__all__ = [
    "RenderedEnv",
    "TimeStep",
    "VectorEnv",
    "builder",
    "from_envs",
    "list_ids",
    "make",
    "make_for",
    "make_rendered",
    "misses_id",
    "repeated",
]


class Family(NamedTuple):
    """Environments whose ids begin alike, and how they are made."""

    make: Callable[[str, int, int | None], VectorEnv]  # id, how many, threads
    make_rendered: Callable[[str], RenderedEnv]
    builder: Callable[[str], Build] | None = None  # of single ones, if these are Gymnasium's


def make_for(config: Config, num_envs: int, num_threads: int | None = None) -> VectorEnv:
    """`num_envs` environments as a run with these settings acts in them."""
    return repeated(make(config.env, num_envs, num_threads), config.action_repeat)


def make(env_id: str, num_envs: int, num_threads: int | None = None) -> VectorEnv:
    """`num_envs` environments that step together.

    Args:
      env_id: which ones; `list_ids` has ours.
      num_envs: B, how many.
      num_threads: of EnvPool and of doom levels; as the cores allow if None. The others step in the caller's thread.
    """
    if num_envs < 1:
        raise UserError(f"num_envs is {num_envs}: at least 1 is needed")
    return _family(env_id).make(env_id, num_envs, num_threads)


def repeated(env: VectorEnv, action_repeat: int) -> VectorEnv:
    """The environments, with every action held for so many steps."""
    return env if action_repeat == 1 else Repeated(env, action_repeat)


def make_rendered(env_id: str) -> RenderedEnv:
    """One environment whose episodes can be filmed."""
    return _family(env_id).make_rendered(env_id)


def builder(env_id: str) -> Build | None:
    """What to call for one Gymnasium environment; None if the id is of one that is no such thing."""
    build = _family(env_id).builder
    return None if build is None else build(env_id)


def list_ids() -> list[str]:
    """The ids of our own environments that this installation can make."""
    has_control = importlib.util.find_spec("dm_control") or importlib.util.find_spec("envpool")
    has_doom = importlib.util.find_spec("vizdoom") and importlib.util.find_spec("labmaze")
    engines = [*(control.ids() if has_control else []), *(doom.LEVEL_IDS if has_doom else [])]
    return [*engines, *hybrid.HYBRIDS, *toys.TOYS]


def misses_id(env_id: str) -> bool:
    """Whether the id looks like one of ours and is none: a misspelt one."""
    ours = tuple(prefix for prefix in FAMILIES if prefix.endswith("/"))
    return env_id.startswith(ours) and ids.split(env_id)[0] not in list_ids()


def _family(env_id: str) -> Family:
    return next((family for prefix, family in FAMILIES.items() if env_id.startswith(prefix)), ANY)


def _gymnasium(build: Callable[[str], Build]) -> Family:
    """Gymnasium environments that step one after the other."""
    return Family(
        make=lambda env_id, num_envs, _: gym.make(build(env_id), num_envs),
        make_rendered=lambda env_id: gym.make_rendered(build(env_id)),
        builder=build,
    )


FAMILIES = {
    "control/": Family(control.make, control.make_rendered),
    "toy/": Family(toys.make, toys.make_rendered),
    "doom/": Family(doom.make, doom.make_rendered, doom.builder),
    "hybrid/": _gymnasium(hybrid.builder),
    **dict.fromkeys(scenarios.PREFIXES, Family(scenarios.make, scenarios.make_rendered, scenarios.builder)),
}
ANY = _gymnasium(lambda env_id: gym.builder(env_id, list_ids()))

doom.register()
