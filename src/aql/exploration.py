"""Epsilon-greedy exploration: how curious each actor is, and what it does by chance.

Chance can hold on to what it tries (Dabney et al. 2021). What it chooses for one decision is undone by the next. Held
for several, it gets somewhere: a pole swings up, a joint moves through.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aql.config import Config


class Curiosity(NamedTuple):
    """How each actor explores."""

    epsilon: jax.Array  # [B] share of its decisions that chance rules
    keep: jax.Array  # [B] probability that chance holds on to what it does


def spread_curiosity(config: Config, index: np.ndarray, total: int) -> Curiosity:
    """Of the actors with these places among all (Horgan et al. 2018; the paper's first tenth explores more).

    Who leaves more to chance also holds on for longer: some actors go far, while others refine what is found.
    """
    low, high = config.epsilon_low, config.epsilon_high
    place = index / max(1, total - 1)
    if config.epsilon_spacing == "tenth":
        place = (index < max(1, total // 10)).astype(float)
    epsilon = low ** (1 - place) * high**place if low > 0 else place * high
    keep = 1 - config.exploration_hold**-place
    return Curiosity(jnp.asarray(epsilon, jnp.float32), jnp.asarray(keep, jnp.float32))


class Whims(NamedTuple):
    """What actors do by chance instead of for its value."""

    action: jax.Array  # [B, D] drawn when each whim began
    rules: jax.Array  # [B, D], or [B, 1] for whole actions: whether there is a whim now


def no_whims(num_actors: int, dimensions: int, per_subaction: bool) -> Whims:
    """How actors begin."""
    rules = jnp.zeros((num_actors, dimensions if per_subaction else 1), bool)
    return Whims(jnp.zeros((num_actors, dimensions)), rules)


def next_whims(whims: Whims, key: jax.Array, drawn: jax.Array, curiosity: Curiosity) -> Whims:
    """Goes on with some whims, and begins others with the actions drawn [B, D].

    As many begin as it takes for whims to rule in a share `epsilon` of all decisions.
    """
    keep_key, begin_key = jax.random.split(key)
    epsilon, keep = curiosity.epsilon[:, None], curiosity.keep[:, None]
    goes_on = whims.rules & (jax.random.uniform(keep_key, whims.rules.shape) < keep)
    often = epsilon * (1 - keep) / (1 - epsilon * keep)
    begins = ~goes_on & (jax.random.uniform(begin_key, whims.rules.shape) < often)
    return Whims(jnp.where(begins, drawn, whims.action), goes_on | begins)
