"""Targets for values: pure functions of one unroll, batched by `jax.vmap` where they are called.

Time runs along axis 0. Names carry it: `r_t` and `discount_t` follow the action of time t-1, and the result is
the target for the value at t-1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


def peng_q_lambda(r_t: jax.Array, discount_t: jax.Array, v_t: jax.Array, lambda_t: jax.Array) -> jax.Array:
    """Peng's Q(lambda) (Peng & Williams 1994; the paper's targets).

        G_{t-1} = r_t + discount_t * ((1 - lambda_t) * v_t + lambda_t * G_t),    G_T = v_T

    With v_t = max_a Q(s_t, a) this mixes all n-step returns of the behaviour with greedy bootstraps and makes no
    off-policy correction. `lambda_t` = 0 stops the mixture at t, as at a time limit, where the next reward belongs
    to another episode.

    Args:
      r_t: [T] rewards.
      discount_t: [T] gamma times the environment's discount, 0 where the episode terminated.
      v_t: [T] greedy values of the states reached.
      lambda_t: [T] weight of the longer returns; the last entry has no effect.

    Returns:
      [T] targets for Q(s_{t-1}, a_{t-1}).
    """
    assert r_t.ndim == discount_t.ndim == v_t.ndim == lambda_t.ndim == 1

    def step(g_t: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        r, discount, v, lam = inputs
        g_tm1 = r + discount * ((1 - lam) * v + lam * g_t)
        return g_tm1, g_tm1

    _, targets = jax.lax.scan(step, v_t[-1], (r_t, discount_t, v_t, lambda_t), reverse=True)
    return jax.lax.stop_gradient(jnp.asarray(targets))


def greedy_trace(q_t: jax.Array, v_t: jax.Array, tolerance: float) -> jax.Array:
    """How far a return may go on beyond an action that the greedy policy might not have taken.

        c_t = min(1, exp((q_t - v_t) / tolerance))

    It is pi(a_t) / pi(a*_t) of the softmax policy pi ~ exp(Q / tolerance): 1 for an action as good as a*, 1/e for one
    that is worth `tolerance` less. With lambda_t = lambda * c_t, Peng's Q(lambda) learns over many steps from what
    followed good actions, and no bad one, tried by chance or by a policy of long ago, is held against those before it.

    Args:
      q_t: values of the actions taken.
      v_t: greedy values of the same states.
      tolerance: in units of Q, above 0.

    Returns:
      The traces, in (0, 1].
    """
    return jnp.exp(jnp.minimum(q_t - v_t, 0) / tolerance)


class VTrace(NamedTuple):
    """What V-trace says about T transitions."""

    target_tm1: jax.Array  # [T] targets for the values of the states left
    advantage_tm1: jax.Array  # [T] of the actions taken, already weighted for the policy gradient


def vtrace(
    v_tm1: jax.Array,
    v_t: jax.Array,
    r_t: jax.Array,
    discount_t: jax.Array,
    rho_tm1: jax.Array,
    lambda_t: jax.Array,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> VTrace:
    """V-trace (Espeholt et al. 2018): the values of the policy pi from what another policy mu did.

        G_{t-1} = v_{t-1} + rho' (r_t + discount_t * v_t - v_{t-1}) + discount_t * lambda_t * c' (G_t - v_t),
        A_{t-1} = rho' (r_t + discount_t * ((1 - lambda_t) * v_t + lambda_t * G_t) - v_{t-1}),    G_T = v_T

    with the ratio rho = pi(a_{t-1} | s_{t-1}) / mu(a_{t-1} | s_{t-1}), rho' = min(clip_rho, rho), which decides whose
    values these are, and c' = min(clip_c, rho), which decides how fast they are learned. `lambda_t` = 0 stops the
    trace at t, as at a time limit, where the next reward belongs to another episode.

    Args:
      v_tm1: [T] values of the states left.
      v_t: [T] values of the states reached; those of `v_tm1` one step later, but for episodes that end.
      r_t: [T] rewards.
      discount_t: [T] gamma times the environment's discount, 0 where the episode terminated.
      rho_tm1: [T] importance ratios of the actions taken.
      lambda_t: [T] weight of the longer returns; the last entry has no effect.
      clip_rho: the largest weight of a TD error.
      clip_c: the largest weight of the trace.
    """
    assert v_tm1.ndim == v_t.ndim == r_t.ndim == discount_t.ndim == rho_tm1.ndim == lambda_t.ndim == 1
    rho = jnp.minimum(clip_rho, rho_tm1)
    error = rho * (r_t + discount_t * v_t - v_tm1)
    decay = discount_t * lambda_t * jnp.minimum(clip_c, rho_tm1)

    def step(surplus_t: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        error, decay = inputs
        surplus_tm1 = error + decay * surplus_t
        return surplus_tm1, (surplus_tm1, surplus_t)

    # A surplus is G - v.
    _, (surplus_tm1, surplus_t) = jax.lax.scan(step, jnp.zeros_like(v_t[0]), (error, decay), reverse=True)
    advantage = error + rho * discount_t * lambda_t * surplus_t
    return jax.lax.stop_gradient(VTrace(v_tm1 + surplus_tm1, advantage))
