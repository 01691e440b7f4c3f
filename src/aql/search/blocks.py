"""Scoring many candidates at the speed of the cache.

Scoring B states x C candidates in one expression writes and reads activations [B, C, H] through main memory, and
that, not arithmetic, is what it costs. In blocks whose activations stay in the cache it is many times faster on a
CPU (benchmarks/search_speed.py).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

BLOCK_FLOATS = 250_000  # activations of one critic in one block: a megabyte; the optimum is flat

Values = Callable[[Any, jax.Array], jax.Array]


def score_in_blocks(values: Values, states: Any, candidates: jax.Array, width: int) -> jax.Array:
    """`values(states [b, ...], candidates [b, c, D]) -> [b, c]` over states [B, ...] and candidates [B, C, D].

    `width` is the number of activations per candidate. A ragged last block is padded and cut again. Candidates of shape
    [1, C, D] are those of every state.
    """
    num_states, num_candidates = len(jax.tree.leaves(states)[0]), candidates.shape[1]
    most = max(1, BLOCK_FLOATS // width)
    if len(candidates) < num_states:
        return _score_shared(values, states, candidates, most)
    if num_candidates > most:  # even one state is too much: cut its candidates, evenly, which needs the least padding
        size = _even(num_candidates, most)
        parts = _split(candidates, size, axis=1)  # [parts, B, size, D]
        scores = jax.lax.map(lambda part: score_in_blocks(values, states, part, width), parts)
        return jnp.moveaxis(scores, 0, 1).reshape(num_states, -1)[:, :num_candidates]
    block = most // num_candidates
    if block >= num_states:
        return values(states, candidates)
    blocks = jax.tree.map(lambda leaf: _split(leaf, _even(num_states, block), axis=0), (states, candidates))
    scores = jax.lax.map(lambda pair: values(*pair), blocks)
    return scores.reshape(-1, num_candidates)[:num_states]


def _score_shared(values: Values, states: Any, candidates: jax.Array, most: int) -> jax.Array:
    """Tiles of states x candidates: what depends on a candidate alone is computed once for all states of a tile."""
    num_states, num_candidates = len(jax.tree.leaves(states)[0]), candidates.shape[1]
    block = _even(num_states, max(1, math.isqrt(most)))
    parts = _split(candidates, _even(num_candidates, max(1, most // block)), axis=1)  # [parts, 1, size, D]
    blocks = jax.tree.map(lambda leaf: _split(leaf, block, axis=0), states)
    tiles = jax.lax.map(lambda some: jax.lax.map(lambda part: values(some, part), parts), blocks)
    rows, columns = tiles.shape[0] * block, tiles.shape[1] * tiles.shape[3]
    return jnp.moveaxis(tiles, 1, 2).reshape(rows, columns)[:num_states, :num_candidates]


def _even(length: int, most: int) -> int:
    """The size of as few equal parts as there can be with no more than `most` in each."""
    parts = -(-length // most)
    return -(-length // parts)


def _split(leaf: jax.Array, size: int, axis: int) -> jax.Array:
    """Cuts an axis into parts of `size`, the last one padded with copies of the edge; parts come first."""
    parts = -(-leaf.shape[axis] // size)
    padding = [(0, 0)] * leaf.ndim
    padding[axis] = (0, parts * size - leaf.shape[axis])
    padded = jnp.pad(leaf, padding, mode="edge")
    shape = (*leaf.shape[:axis], parts, size, *leaf.shape[axis + 1 :])
    return jnp.moveaxis(padded.reshape(shape), axis, 0)
