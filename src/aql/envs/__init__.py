"""Environments by id: `control/<domain>-<task>`, `hybrid/<name>`, `toy/<name>`, any of Gymnasium, `module:factory`."""

import importlib.util

from aql.envs import control, gym, hybrid, toys
from aql.envs.base import TimeStep, VectorEnv
from aql.envs.gym import from_envs
from aql.envs.serial import RenderedEnv
from aql.errors import UserError, unknown

__all__ = ["RenderedEnv", "TimeStep", "VectorEnv", "from_envs", "list_ids", "make", "make_rendered"]


def make(env_id: str, num_envs: int, num_threads: int | None = None, backend: str = "auto") -> VectorEnv:
    """`num_envs` environments that step together.

    Args:
      env_id: which ones; `list_ids` has ours.
      num_envs: B, how many.
      num_threads: of EnvPool; as many as there are cores if None. The others step in the caller's thread.
      backend: of control tasks: `envpool`, `dm_control`, or `auto` for the first of them that works.
    """
    if num_envs < 1:
        raise UserError(f"num_envs is {num_envs}: at least 1 is needed")
    if env_id.startswith("control/"):
        return control.make(env_id, num_envs, num_threads, backend)
    if env_id.startswith("toy/"):
        if env_id not in toys.TOYS:
            raise unknown("environment", env_id, toys.TOYS, "`aql envs` lists them all")
        return toys.TOYS[env_id](num_envs)
    return gym.make(_gymnasium_id(env_id), num_envs, list_ids())


def make_rendered(env_id: str) -> RenderedEnv:
    """One environment whose episodes can be filmed."""
    if env_id.startswith("control/"):
        return control.make_rendered(env_id)
    if env_id.startswith("toy/"):
        raise UserError(f"{env_id} has no picture: film a control task or a Gymnasium environment")
    return gym.make_rendered(_gymnasium_id(env_id), list_ids())


def list_ids() -> list[str]:
    """The ids of our own environments that this installation can make."""
    has_control = importlib.util.find_spec("dm_control") or importlib.util.find_spec("envpool")
    return [*(control.ids() if has_control else []), *hybrid.HYBRIDS, *toys.TOYS]


def _gymnasium_id(env_id: str) -> str:
    """What Gymnasium calls one of our hybrid tasks; any other id as it is."""
    if env_id.startswith("hybrid/") and env_id not in hybrid.HYBRIDS:
        raise unknown("environment", env_id, hybrid.HYBRIDS, "`aql envs` lists them all")
    return hybrid.HYBRIDS.get(env_id, env_id)
