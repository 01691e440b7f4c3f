"""Losses: pure functions of numbers that somebody else computed."""

import jax
import jax.numpy as jnp


def masked_mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean of x where mask is 1; 0 if it is 0 everywhere."""
    mask = jnp.broadcast_to(mask, x.shape).astype(x.dtype)
    return jnp.sum(x * mask) / jnp.maximum(jnp.sum(mask), 1)


def td_loss(q_tm1: jax.Array, target_tm1: jax.Array, mask: jax.Array) -> jax.Array:
    """Half the mean squared TD error over real transitions (the paper's Q loss)."""
    return 0.5 * masked_mean(jnp.square(target_tm1 - q_tm1), mask)


def proposal_loss(log_prob: jax.Array, entropy: jax.Array, entropy_weight: float) -> jax.Array:
    """-log mu(a* | s) - weight * H(mu(. | s)), the mean over states (the paper's proposal loss)."""
    return -jnp.mean(log_prob) - entropy_weight * jnp.mean(entropy)
