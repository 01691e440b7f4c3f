"""QT-Opt's search: the cross-entropy method on Q."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from aql.actions import ActionSpace
from aql.search.base import Fixed, Found, Params, Score, best_of


@dataclasses.dataclass(frozen=True)
class CrossEntropy(Fixed):
    """Samples, keeps the elites, refits independent distributions per sub-action, and repeats.

    The first samples are uniform. A continuous sub-action is refitted with a Gaussian, a discrete one with the
    frequencies of its elites' choices. The best action of all iterations wins.
    """

    space: ActionSpace
    samples: int
    elites: int
    iterations: int

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
        keys = jax.random.split(key, self.iterations)
        candidates = self.space.sample(keys[0], (embedding.shape[0], self.samples), allowed)
        if known is not None:
            candidates = jnp.concatenate([candidates, known], axis=1)
        tried, values = candidates, score(candidates)
        every_value = values
        for next_key in keys[1:]:
            _, elite = jax.lax.top_k(values, self.elites)
            candidates = self._resample(next_key, jnp.take_along_axis(candidates, elite[..., None], axis=1))
            values = score(candidates)
            tried = jnp.concatenate([tried, candidates], axis=1)
            every_value = jnp.concatenate([every_value, values], axis=1)
        return best_of(tried, lambda _: every_value)

    def _resample(self, key: jax.Array, elites: jax.Array) -> jax.Array:
        """Elites [B, L, D] -> new samples [B, samples, D]."""
        key_choice, key_gauss = jax.random.split(key)
        shape = (elites.shape[0], self.samples, self.space.dimensions)
        # Drawing each sub-action from a random elite is drawing from the elites' frequencies.
        donor = jax.random.randint(key_choice, shape, 0, self.elites)
        choice = jnp.take_along_axis(elites, donor, axis=1)
        if self.space.is_discrete:
            return choice
        mean, std = jnp.mean(elites, axis=1, keepdims=True), jnp.std(elites, axis=1, keepdims=True)
        gaussian = jnp.clip(mean + std * jax.random.normal(key_gauss, shape), -1, 1)
        return jnp.where(np.asarray(self.space.num_choices) > 0, choice, gaussian)
