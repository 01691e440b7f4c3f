"""Tasks with structured actions, registered with Gymnasium: `hybrid/moving` here is `aql/Moving-v0` there.

Moving, Sliding and Platform are written anew from their public descriptions, which the modules name.
"""

from collections.abc import Mapping

import gymnasium

from aql.envs import gym
from aql.errors import unknown

HYBRIDS: Mapping[str, str] = {
    "hybrid/moving": "aql/Moving-v0",
    "hybrid/sliding": "aql/Sliding-v0",
    "hybrid/platform": "aql/Platform-v0",
    "hybrid/allocation": "aql/Allocation-v0",
}

gymnasium.register("aql/Moving-v0", "aql.envs.hybrid.point:Moving")
gymnasium.register("aql/Sliding-v0", "aql.envs.hybrid.point:Sliding")
gymnasium.register("aql/Platform-v0", "aql.envs.hybrid.platform:Platform", max_episode_steps=250)
gymnasium.register("aql/Allocation-v0", "aql.envs.hybrid.allocation:Allocation")


def builder(env_id: str) -> gym.Build:
    """What to call for one task."""
    name, question, options = env_id.partition("?")
    if name not in HYBRIDS:
        raise unknown("environment", name, HYBRIDS, "`aql envs` lists them all")
    return gym.builder(f"{HYBRIDS[name]}{question}{options}")
