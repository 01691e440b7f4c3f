"""From observations to the state embedding that Q and the proposal share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Statistics(NamedTuple):
    """Running mean and variance of observations, updated by the learner and used by everybody."""

    seen: jax.Array  # [] how many
    mean: jax.Array  # [n]
    variance: jax.Array  # [n]


def init_statistics(shape: tuple[int, ...]) -> Statistics:
    """Statistics of nothing: they normalise nothing."""
    return Statistics(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def update_statistics(statistics: Statistics, observation: jax.Array) -> Statistics:
    """Merges a batch [B, *shape] into the running moments (Chan et al. 1979)."""
    seen = statistics.seen + observation.shape[0]
    weight = observation.shape[0] / seen
    delta = jnp.mean(observation, axis=0) - statistics.mean
    mean = statistics.mean + weight * delta
    variance = (
        (1 - weight) * statistics.variance
        + weight * jnp.var(observation, axis=0)
        + weight * (1 - weight) * jnp.square(delta)
    )
    return Statistics(seen, mean, variance)


def normalise(statistics: Statistics, observation: jax.Array, limit: float = 10.0) -> jax.Array:
    """[..., *shape] -> the same in units of standard deviations from the mean, clipped to +-limit."""
    # The floor keeps a sensor that never moves from amplifying its rounding errors.
    scaled = (observation - statistics.mean) / jnp.sqrt(jnp.maximum(statistics.variance, 1e-4))
    return jnp.clip(scaled, -limit, limit)
