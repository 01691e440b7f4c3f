"""Epsilon-greedy exploration: how curious each actor is, and what it does by chance.

Chance can hold on to what it tries (Dabney et al. 2021). What it chooses for one decision is undone by the next. Held
for several, it gets somewhere: a pole swings up, a joint moves through.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aql.config import Config


def spread_epsilons(config: Config, index: np.ndarray, total: int) -> jax.Array:
    """[B] of the actors with these places among all (Horgan et al. 2018; the paper's first tenth explores more)."""
    low, high = config.epsilon_low, config.epsilon_high
    fraction = jnp.asarray(index) / max(1, total - 1)
    if config.epsilon_spacing == "tenth":
        epsilon = jnp.where(jnp.asarray(index) < max(1, total // 10), high, low)
    else:
        epsilon = low ** (1 - fraction) * high**fraction if low > 0 else fraction * high
    return epsilon.astype(jnp.float32)


class Whims(NamedTuple):
    """What actors do by chance instead of for its value."""

    action: jax.Array  # [B, D] drawn when each whim began
    rules: jax.Array  # [B, D], or [B, 1] for whole actions: whether there is a whim now


def no_whims(num_actors: int, dimensions: int, per_subaction: bool) -> Whims:
    """How actors begin."""
    rules = jnp.zeros((num_actors, dimensions if per_subaction else 1), bool)
    return Whims(jnp.zeros((num_actors, dimensions)), rules)


def next_whims(whims: Whims, key: jax.Array, drawn: jax.Array, epsilon: jax.Array | float, keep: float) -> Whims:
    """Goes on with each whim with probability `keep`, and begins others with the actions drawn [B, D].

    As many begin as it takes for whims to rule in a share `epsilon` [B, 1] of all decisions.
    """
    keep_key, begin_key = jax.random.split(key)
    goes_on = whims.rules & (jax.random.uniform(keep_key, whims.rules.shape) < keep)
    often = epsilon * (1 - keep) / (1 - epsilon * keep)
    begins = ~goes_on & (jax.random.uniform(begin_key, whims.rules.shape) < often)
    return Whims(jnp.where(begins, drawn, whims.action), goes_on | begins)
