"""Environments by id: `control/<domain>-<task>`, `hybrid/<name>`, `doom/<level>`, `toy/<name>`, Gymnasium's,
`package.module:factory`.

Some take options in the id, `doom/explore_goal_locations_small?action_set=curated`: see `ids` and `adapters`.
"""

import importlib.util

from aql.envs import control, doom, gym, hybrid, ids, toys
from aql.envs.base import TimeStep, VectorEnv
from aql.envs.doom import scenarios
from aql.envs.gym import from_envs
from aql.envs.serial import RenderedEnv
from aql.errors import UserError, unknown

__all__ = ["RenderedEnv", "TimeStep", "VectorEnv", "from_envs", "list_ids", "make", "make_rendered"]


def make(env_id: str, num_envs: int, num_threads: int | None = None, backend: str = "auto") -> VectorEnv:
    """`num_envs` environments that step together.

    Args:
      env_id: which ones; `list_ids` has ours.
      num_envs: B, how many.
      num_threads: of EnvPool and of doom levels; as the cores allow if None. The others step in the caller's thread.
      backend: of control tasks: `envpool`, `dm_control`, or `auto` for the first of them that works.
    """
    if num_envs < 1:
        raise UserError(f"num_envs is {num_envs}: at least 1 is needed")
    if env_id.startswith("control/"):
        ids.refuse_options(env_id)
        return control.make(env_id, num_envs, num_threads, backend)
    if env_id.startswith("toy/"):
        ids.refuse_options(env_id)
        if env_id not in toys.TOYS:
            raise unknown("environment", env_id, toys.TOYS, "`aql envs` lists them all")
        return toys.TOYS[env_id](num_envs)
    if env_id.startswith("doom/"):
        return doom.make(env_id, num_envs, num_threads)
    if env_id.startswith(scenarios.PREFIXES):
        return scenarios.make(env_id, num_envs, num_threads)
    return gym.make(_gymnasium_id(env_id), num_envs, list_ids())


def make_rendered(env_id: str) -> RenderedEnv:
    """One environment whose episodes can be filmed."""
    if env_id.startswith("control/"):
        return control.make_rendered(env_id)
    if env_id.startswith("toy/"):
        raise UserError(f"{env_id} has no picture: film a control task or a Gymnasium environment")
    if env_id.startswith("doom/"):
        return doom.make_rendered(env_id)
    if env_id.startswith(scenarios.PREFIXES):
        return scenarios.make_rendered(env_id)
    return gym.make_rendered(_gymnasium_id(env_id), list_ids())


def list_ids() -> list[str]:
    """The ids of our own environments that this installation can make."""
    has_control = importlib.util.find_spec("dm_control") or importlib.util.find_spec("envpool")
    has_doom = importlib.util.find_spec("vizdoom") and importlib.util.find_spec("labmaze")
    engines = [*(control.ids() if has_control else []), *(doom.LEVEL_IDS if has_doom else [])]
    return [*engines, *hybrid.HYBRIDS, *toys.TOYS]


def _gymnasium_id(env_id: str) -> str:
    """What Gymnasium calls one of our hybrid tasks, options kept; any other id as it is."""
    name, question, options = env_id.partition("?")
    if name.startswith("hybrid/") and name not in hybrid.HYBRIDS:
        raise unknown("environment", name, hybrid.HYBRIDS, "`aql envs` lists them all")
    return f"{hybrid.HYBRIDS.get(name, name)}{question}{options}"


doom.register()
