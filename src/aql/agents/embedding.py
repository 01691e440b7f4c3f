"""From observations to the state embedding that an agent's networks share: the identity, normalised if wished."""

import jax

from aql.agents.base import EnvSpec
from aql.config import Config
from aql.networks import torsos


def observe(config: Config, env: EnvSpec, statistics: torsos.Statistics, observation: jax.Array) -> torsos.Statistics:
    """The statistics with observations [..., *observation_shape] counted in, if they are used."""
    if not config.normalise_observations:
        return statistics
    return torsos.update_statistics(statistics, observation.reshape(-1, *env.observation_shape))


def embed(config: Config, env: EnvSpec, statistics: torsos.Statistics, observation: jax.Array) -> jax.Array:
    """[..., *observation_shape] -> [..., E]."""
    if config.normalise_observations:
        observation = torsos.normalise(statistics, observation)
    leading = observation.shape[: observation.ndim - len(env.observation_shape)]
    return observation.reshape(*leading, -1)
