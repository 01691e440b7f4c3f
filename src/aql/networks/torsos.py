"""From observations to the state embedding that Q and the proposal share."""

import math
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
    return jnp.clip((observation - statistics.mean) / _deviation(statistics), -limit, limit)


def magnify(statistics: Statistics, observation: jax.Array, times: float) -> jax.Array:
    """[..., *shape] -> what is near 0 of it in larger units, and further away no more than its sign.

    m = `times` are shared out: near 0 it is sqrt(m) times as steep as `normalise`, far away no larger than 1 / sqrt(m).
    As large as the other inputs, so many signs would drown them where there are many sensors.
    """
    return jnp.tanh(times * observation / _deviation(statistics)) / math.sqrt(times)


def _deviation(statistics: Statistics) -> jax.Array:
    """[*shape]; its floor keeps a sensor that never moves from amplifying its rounding errors."""
    return jnp.sqrt(jnp.maximum(statistics.variance, 1e-4))
