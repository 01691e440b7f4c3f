"""The seam between the value-based agents: how to approximate argmax_a Q(s, a).

A search proposes candidates, Q scores them, the best one wins. AQL's search also learns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from aql.networks.proposals import Conditionals

Params = Any
Metrics = dict[str, jax.Array]
Score = Callable[[jax.Array], jax.Array]  # candidates [B, C, D], or [1, C, D] for all states -> values [B, C]


class Found(NamedTuple):
    """The best action that a search found in each of B states."""

    action: jax.Array  # [B, D]
    value: jax.Array  # [B]
    place: jax.Array  # [B] which candidate it was
    values: jax.Array  # [B, C] of all candidates; -inf if not allowed


class Search(Protocol):
    """A way to look for the best action. Pure: parameters and keys are arguments."""

    def init(self, key: jax.Array, embedding: jax.Array) -> Params:
        """Parameters of what is learned, for state embeddings like [B, E]; {} if nothing is."""
        ...

    def __call__(
        self,
        params: Params,
        key: jax.Array,
        embedding: jax.Array,
        score: Score,
        known: jax.Array | None = None,
        allowed: jax.Array | None = None,
    ) -> Found:
        """The best candidate in each state [B, E].

        `known` [B, C, D] are candidates that the caller adds; `allowed` as in `ActionSpace.allowed`.
        """
        ...

    def from_proposal(self, found: Found) -> jax.Array:
        """[B] whether the found actions came from a learned proposal."""
        ...

    def conditionals(
        self, params: Params, embedding: jax.Array, action: jax.Array, allowed: jax.Array | None = None
    ) -> Conditionals | None:
        """How likely a learned proposal makes the choices on the way to actions [B, D]; None without a proposal."""
        ...

    def loss(
        self, params: Params, embedding: jax.Array, best_action: jax.Array, allowed: jax.Array | None = None
    ) -> tuple[jax.Array, Metrics]:
        """What to descend so that the best actions [B, D] become easier to find in their states [B, E]."""
        ...


class Fixed:
    """The half of a search that learns nothing."""

    def init(self, key: jax.Array, embedding: jax.Array) -> Params:
        """Nothing to learn."""
        return {}

    def from_proposal(self, found: Found) -> jax.Array:
        """Nothing is learned, so nothing came from it."""
        return jnp.zeros(found.place.shape, bool)

    def conditionals(
        self, params: Params, embedding: jax.Array, action: jax.Array, allowed: jax.Array | None = None
    ) -> Conditionals | None:
        """There is no proposal."""
        return None

    def loss(
        self, params: Params, embedding: jax.Array, best_action: jax.Array, allowed: jax.Array | None = None
    ) -> tuple[jax.Array, Metrics]:
        """Nothing to descend."""
        return jnp.zeros(()), {}


def best_of(candidates: jax.Array, score: Score, known: jax.Array | None = None) -> Found:
    """The candidate [B, C, D] with the highest score; the first one of equals."""
    if known is not None:
        candidates = jnp.concatenate([candidates, known], axis=1)
    values = score(candidates)
    place = jnp.argmax(values, axis=1)
    action = jnp.take_along_axis(candidates, place[:, None, None], axis=1)[:, 0]
    return Found(action, jnp.max(values, axis=1), place, values)
