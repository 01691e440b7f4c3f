"""Independent random streams from one seed, each with a name, so that no stream depends on what others drew."""

import zlib

import jax
import numpy as np


def sequence(seed: int, stream: str, *index: int) -> np.random.SeedSequence:
    """The stream's own entropy."""
    return np.random.SeedSequence([seed, zlib.crc32(stream.encode()), *index])


def integer(seed: int, stream: str, *index: int) -> int:
    """A 31-bit seed, as environments take it."""
    return int(sequence(seed, stream, *index).generate_state(1)[0] >> 1)


def key(seed: int, stream: str, *index: int) -> jax.Array:
    """A JAX key."""
    return jax.random.PRNGKey(integer(seed, stream, *index))


def generator(seed: int, stream: str, *index: int) -> np.random.Generator:
    """A NumPy generator."""
    return np.random.default_rng(sequence(seed, stream, *index))
