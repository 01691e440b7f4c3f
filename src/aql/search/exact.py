"""Exact Q-learning: every action is a candidate."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from aql.actions import ActionSpace
from aql.errors import UserError
from aql.search.base import Fixed, Found, Params, Score

MOST_ACTIONS = 100_000


@dataclasses.dataclass(frozen=True)
class Exact(Fixed):
    """The maximum itself, at the cost of scoring every action."""

    space: ActionSpace

    def __post_init__(self) -> None:
        if self.space.size > MOST_ACTIONS:
            raise UserError(
                f"the action space has {self.space.describe_size()} actions, more than the {MOST_ACTIONS:,} "
                "that can be enumerated in every state: use the agent `aql`"
            )

    @functools.cached_property
    def _actions(self) -> np.ndarray:
        return self.space.enumerate()

    def __call__(
        self,
        params: Params,
        key: jax.Array,
        embedding: jax.Array,
        score: Score,
        known: jax.Array | None = None,
        allowed: jax.Array | None = None,
    ) -> Found:
        """See `Search`; `known` actions are among the candidates already."""
        actions = jnp.asarray(self._actions)  # [A, D]
        values = jnp.broadcast_to(score(actions[None]), (embedding.shape[0], len(actions)))
        if allowed is not None:
            may = jnp.all(allowed[:, np.arange(self.space.dimensions), self.space.to_index(actions)], axis=-1)  # [B, A]
            values = jnp.where(may, values, -jnp.inf)
        place = jnp.argmax(values, axis=1)
        return Found(actions[place], jnp.max(values, axis=1), place, values)
