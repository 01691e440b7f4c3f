"""Networks that get wider as they learn: small and quick while there is little to know, larger when there is more.

Every unit becomes two that do the same, with half of the weight each in whatever reads them, so that nothing changes
at first (Chen et al. 2016). The copies' own weights are a little different, so that they can part.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from aql.config import Config

_DIFFERENCE = 0.2  # of a copied weight, at most


def wider(config: Config) -> Config:
    """The same, with twice the units in every layer of critics, values, proposals and policies."""
    return dataclasses.replace(
        config,
        critic_layers=tuple(2 * size for size in config.critic_layers),
        proposal_layers=tuple(2 * size for size in config.proposal_layers),
    )


def grow(state: Any, like: Any, key: jax.Array) -> Any:
    """A learner's state with the shapes of `like`, where what belongs to hidden units is twice as long.

    Networks, those that follow them, averages and moments of optimisers all grow in the same way, with the same
    differences: what a target was to its network, it stays.
    """

    def double(path: Any, leaf: jax.Array, wide: jax.ShapeDtypeStruct) -> jax.Array:
        for axis, (short, long) in enumerate(zip(leaf.shape, wide.shape, strict=True)):
            if long == short:
                continue
            if axis < leaf.ndim - 1:  # what units are read by
                leaf = jnp.concatenate([leaf, leaf], axis=axis) / 2
            elif path[-1] == jax.tree_util.DictKey("kernel"):
                # No difference changes a sign: squares stay positive.
                difference = jax.random.uniform(key, leaf.shape[-2:], leaf.dtype, -_DIFFERENCE, _DIFFERENCE)
                leaf = jnp.concatenate([leaf, leaf * (1 + difference)], axis=axis)
            else:
                leaf = jnp.concatenate([leaf, leaf], axis=axis)
        return leaf

    return jax.tree_util.tree_map_with_path(double, state, like)
