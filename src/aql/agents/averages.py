"""Averages of networks over recent stretches of learning, for decisions that are to be good instead of curious.

What learns goes up and down from update to update, so an average decides better than any moment. But where all actions
are worth nearly the same, who always asks the same Q may put off what has to be done for ever: several averages take
turns, and where one is stuck the next one may see a way out.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_SPAN = 0.2  # of all updates, for all averages together
EVERY = 16  # updates from one moment that counts to the next: between them a network hardly changes


class Averages(NamedTuple):
    """K means of a network, each over moments of its own: the newest one over those since `began`."""

    networks: Any  # each leaf [K, ...]
    newest: jax.Array  # [] which of the K it is
    began: jax.Array  # [] the number of its first moment
    updates: jax.Array  # [] all so far

    def at(self, decision: jax.Array, turn: int) -> Any:
        """The network whose turn it is when so many decisions were made, `turn` by each."""
        place = decision // turn % _count(self)
        return jax.tree.map(lambda leaf: leaf[place], self.networks)


def start(network: Any, count: int) -> Averages:
    """As many averages, of nothing but the network as it is."""
    zero = jnp.zeros((), jnp.int32)
    return Averages(jax.tree.map(lambda leaf: jnp.stack([leaf] * count), network), zero, zero, zero)


def extend(averages: Averages, network: Any) -> Averages:
    """The averages after one more update, which brought about this network."""
    averages = averages._replace(updates=averages.updates + 1)
    return jax.lax.cond(averages.updates % EVERY == 0, _count_in, lambda averages, _: averages, averages, network)


def _count_in(averages: Averages, network: Any) -> Averages:
    """The averages after one more moment.

    The newest one is the mean of the networks since it began. When it spans its share of all moments, the oldest one
    begins anew in its place: so each rests at what it was, while stretches grow with the time of learning.
    """
    count = _count(averages)
    moment = averages.updates // EVERY
    full = moment - averages.began >= jnp.ceil(_SPAN / count * moment.astype(jnp.float32)).astype(jnp.int32)
    newest = jnp.where(full, (averages.newest + 1) % count, averages.newest)
    began = jnp.where(full, moment, averages.began)
    step = 1 / (moment - began + 1)

    def follow(mean: jax.Array, leaf: jax.Array) -> jax.Array:
        old = jax.lax.dynamic_index_in_dim(mean, newest, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(mean, old + step * (leaf - old), newest, 0)

    return Averages(jax.tree.map(follow, averages.networks, network), newest, began, averages.updates)


def _count(averages: Averages) -> int:
    return len(jax.tree.leaves(averages.networks)[0])
