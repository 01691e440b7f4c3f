"""Targets for values: pure functions of one unroll, batched by `jax.vmap` where they are called.

Time runs along axis 0. Names carry it: `r_t` and `discount_t` follow the action of time t-1, and the result is
the target for the value at t-1.
"""

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
