"""Uniform Q-learning: the best of M actions drawn uniformly."""

import dataclasses

import jax

from aql.actions import ActionSpace
from aql.search.base import Fixed, Found, Params, Score, best_of


@dataclasses.dataclass(frozen=True)
class Uniform(Fixed):
    """The best of `num_uniform` uniform samples: the paper's ablation of the learned proposal."""

    space: ActionSpace
    num_uniform: int

    def __call__(
        self,
        params: Params,
        key: jax.Array,
        embedding: jax.Array,
        score: Score,
        known: jax.Array | None = None,
        allowed: jax.Array | None = None,
    ) -> Found:
        """See `Search`."""
        return best_of(self.space.sample(key, (embedding.shape[0], self.num_uniform), allowed), score, known)
