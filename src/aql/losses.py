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


def prediction_loss(said: jax.Array, happened: jax.Array, mask: jax.Array) -> jax.Array:
    """Half the squared error, summed over what is predicted [..., P], as a mean over real transitions."""
    return 0.5 * masked_mean(jnp.sum(jnp.square(happened - said), axis=-1), mask)


def as_large_as(other: jax.Array, loss: jax.Array) -> jax.Array:
    """The loss in the size of another one. How large it was does not matter, nor does the other one feel its pull."""
    return loss * jax.lax.stop_gradient(other / jnp.maximum(loss, 1e-6))


def proposal_loss(log_prob: jax.Array, entropy: jax.Array, entropy_weight: float) -> jax.Array:
    """-log mu(a* | s) - weight * H(mu(. | s)), the mean over states (the paper's proposal loss)."""
    return -jnp.mean(log_prob) - entropy_weight * jnp.mean(entropy)


def deterministic_policy_loss(q: jax.Array, effort: jax.Array, effort_weight: float) -> jax.Array:
    """-Q(s, pi(s)) + weight * effort^2, means over states (and critics, and sub-actions).

    The gradient of Q reaches the policy pi = tanh(effort) through the action (Silver et al. 2014). Where tanh saturates
    it vanishes, so a policy that was once driven to a bound would stay there: the second term keeps it within reach.
    """
    return -jnp.mean(q) + effort_weight * jnp.mean(jnp.square(effort))


def policy_gradient_loss(
    log_prob_tm1: jax.Array, advantage_tm1: jax.Array, entropy_tm1: jax.Array, mask: jax.Array, entropy_weight: float
) -> jax.Array:
    """-A log pi(a | s) - weight * H(pi(. | s)), the mean over real transitions; no gradient flows into A."""
    gain = jax.lax.stop_gradient(advantage_tm1) * log_prob_tm1 + entropy_weight * entropy_tm1
    return -masked_mean(gain, mask)
