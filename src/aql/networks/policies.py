"""The deterministic policy: one action for each state. (A stochastic policy is a `proposals.Proposal`.)"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from aql.networks.critics import Tower


class DeterministicPolicy(nn.Module):
    """pi(s) = tanh(W relu(f(s))): a vector of continuous sub-actions, each scaled to [-1, 1]."""

    dimensions: int
    layers: tuple[int, ...]

    @nn.compact
    def effort(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [..., D], what tanh is taken of."""
        # Actions begin near 0: where tanh saturates, no gradient would bring them back (Lillicrap et al. 2016).
        small = nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal")
        features = nn.relu(Tower(self.layers)(embedding))
        return nn.Dense(self.dimensions, kernel_init=small)(features)

    def __call__(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [..., D]."""
        return jnp.tanh(self.effort(embedding))
