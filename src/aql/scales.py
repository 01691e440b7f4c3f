"""How critics count: on a scale on which small values have room of their own."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

_SMALLEST = 1e-12  # share of the most there is: what is smaller counts for nothing
_DIGITS = math.log1p(1 / _SMALLEST)
_NEWTON_STEPS = 6  # to float32's precision


class Scale(NamedTuple):
    """Numbers that critics learn in place of Q, and back (a transformed Bellman operator, Pohlen et al. 2018).

        y = most * ((1 - share) * x + share * log(1 + x / 1e-12) / log(1 + 1 / 1e-12)),    x = Q / most

    Near the most there is, y goes with Q, so that good actions are told from the best as before. Near nothing it goes
    with the number of digits: a thousandth of a point more than a millionth is as much to see there as a point more
    than a thousandth. Which action is best is the same on either scale. Values below 0 count as those above it.
    """

    most: float  # what Q is at most
    share: float  # of the scale, for small values, below 1; 0: y is Q

    @property
    def small(self) -> float:
        """How far the part of the scale goes that is for small values."""
        return self.most * self.share if self.share else 0.0

    def compress(self, q: jax.Array) -> jax.Array:
        """What a critic learns for Q."""
        if not self.share:
            return q
        x = jnp.abs(q) / self.most
        return self.most * jnp.sign(q) * ((1 - self.share) * x + self.share / _DIGITS * jnp.log1p(x / _SMALLEST))

    def expand(self, y: jax.Array) -> jax.Array:
        """Q, for what a critic says."""
        if not self.share:
            return y
        size = jnp.abs(y) / self.most
        # Newton's method for z = log(1 + x / 1e-12). Either term alone gives a z that is too large, and since the sum
        # is convex in z, no step from there goes too far.
        linear, digit = (1 - self.share) * _SMALLEST, self.share / _DIGITS
        z = jnp.minimum(size / digit, jnp.log1p(size / linear))
        for _ in range(_NEWTON_STEPS):
            grown = linear * jnp.exp(z)
            z -= (grown - linear + digit * z - size) / (grown + digit)
        return self.most * jnp.sign(y) * _SMALLEST * jnp.expm1(z)
