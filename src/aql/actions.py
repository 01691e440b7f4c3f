"""Action spaces as products of sub-actions, A = A_1 x ... x A_D.

Each sub-action is a finite set or an interval. Inside the library an action is one float vector of D numbers:
the index of the choice for a finite set, the value scaled to [-1, 1] for an interval. `encode` turns actions
into features for a network; `to_env` and `from_env` convert to and from what an environment takes.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from aql import nested
from aql.errors import UserError
from aql.nested import Discrete, Interval, SubAction

__all__ = ["ActionSpace", "Discrete", "Interval", "SubAction"]

# Features of an action up to which a product is faster than looking rows up: in all, and for each sub-action.
MOST_MULTIPLIED, MOST_MULTIPLIED_EACH = 256, 32


@dataclasses.dataclass(frozen=True)
class ActionSpace:
    """A product of sub-actions, and how the environment spells its actions.

    Attributes:
      subactions: A_1, ..., A_D in the environment's order.
      interval_encoding: what a discretised interval becomes in `encode`: its `value`, which keeps the order
        and costs one feature, or `one-hot`. Finite sets are always one-hot, continuous values never.
      space: the environment's own space; without one, `to_env` gives the flat vector in the environment's units.
    """

    subactions: tuple[SubAction, ...]
    interval_encoding: Literal["value", "one-hot"] = "value"
    space: gymnasium.Space | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.subactions:
            raise UserError("the action space has no sub-actions: there is nothing to choose")

    # What the space is made of.

    @property
    def dimensions(self) -> int:
        """D, the number of sub-actions."""
        return len(self.subactions)

    @functools.cached_property
    def names(self) -> list[str]:
        """[D] how each sub-action is reached in the environment's own structure, as `['arm'][0]`."""
        if self.space is None or self.space.shape == ():
            return [f"[{d}]" if self.dimensions > 1 else "action" for d in range(self.dimensions)]
        return list(nested.names(self.space))

    @functools.cached_property
    def num_choices(self) -> np.ndarray:
        """[D] the number of choices of each sub-action, 0 for a continuous one."""
        return np.array([a.n if isinstance(a, Discrete) else a.bins or 0 for a in self.subactions])

    @property
    def is_discrete(self) -> bool:
        """Whether every sub-action has finitely many choices."""
        return bool(np.all(self.num_choices > 0))

    @functools.cached_property
    def size(self) -> int | float:
        """The number of distinct actions; infinite if a sub-action is continuous."""
        return math.prod(int(n) for n in self.num_choices) if self.is_discrete else math.inf

    def describe_size(self) -> str:
        """The number of distinct actions in words, however large: 24, 4.8e+14, 1e+400, infinitely many."""
        if not self.is_discrete:
            return "infinitely many"
        if self.size < 1e6:
            return f"{self.size:,}"
        magnitude = float(np.sum(np.log10(self.num_choices)))
        exponent = math.floor(magnitude + 1e-9)  # powers of ten are exact
        digits = f"{10 ** (magnitude - exponent):.2g}"
        return f"1e+{exponent + 1:02}" if digits == "10" else f"{digits}e+{exponent:02}"

    def with_bins(self, bins: int | None) -> "ActionSpace":
        """The same space with every interval discretised into `bins` values, or continuous for None."""
        discretised = tuple(
            dataclasses.replace(a, bins=bins) if isinstance(a, Interval) and not a.integers else a
            for a in self.subactions
        )
        return dataclasses.replace(self, subactions=discretised)

    # Choices and values. `_step` and `_offset` make the map from a choice's index to its value one affine
    # expression for all sub-actions: no table look-ups in hot loops.

    @functools.cached_property
    def _step(self) -> np.ndarray:
        steps = [1.0 if isinstance(a, Discrete) else 2.0 / ((a.bins or 2) - 1) for a in self.subactions]
        return np.array(steps, np.float32)

    @functools.cached_property
    def _offset(self) -> np.ndarray:
        return np.array([0.0 if isinstance(a, Discrete) else -1.0 for a in self.subactions], np.float32)

    def from_index(self, index: jax.Array, d: jax.Array | int | None = None) -> jax.Array:
        """Indices of choices -> actions: of all sub-actions [..., D], or of sub-action d alone [...]."""
        if d is None:
            return self._offset + self._step * index
        return jnp.asarray(self._offset)[d] + jnp.asarray(self._step)[d] * index

    def to_index(self, action: jax.Array) -> jax.Array:
        """[..., D] actions -> indices (int32) of the nearest choices."""
        nearest = jnp.round((action - self._offset) / self._step).astype(jnp.int32)
        return jnp.clip(nearest, 0, np.maximum(self.num_choices - 1, 0))

    def sample(self, key: jax.Array, shape: Sequence[int] = (), allowed: jax.Array | None = None) -> jax.Array:
        """[*shape, D] actions drawn uniformly; from the `allowed` ones [B, D, K] if the shape is (B, n)."""
        full_shape = (*shape, self.dimensions)
        if allowed is not None:
            return self._sample_allowed(jax.random.uniform(key, full_shape), allowed)
        if self.is_discrete and self.num_choices.max() <= 256:
            # Random bits are a visible share of a search; 16 of them leave a bias below 256 / 2^16.
            uniform = (jax.random.bits(key, full_shape, jnp.uint16).astype(jnp.float32) + 0.5) / 2**16
        else:
            uniform = jax.random.uniform(key, full_shape)
        index = jnp.floor(uniform * self.num_choices)
        return jnp.where(self.num_choices > 0, self.from_index(index), 2 * uniform - 1)

    def _sample_allowed(self, uniform: jax.Array, allowed: jax.Array) -> jax.Array:
        """Uniform numbers [B, n, D] and what is allowed [B, D, K] -> actions [B, n, D]."""
        rank = jnp.cumsum(allowed, axis=-1)  # the r-th allowed choice is the first one of rank above r
        r = jnp.floor(uniform * rank[:, None, :, -1])
        index = jnp.sum(rank[:, None] <= r[..., None], axis=-1)
        return jnp.where(self.num_choices > 0, self.from_index(index), 2 * uniform - 1)

    def uniform_log_prob(self, shape: Sequence[int] = (), allowed: jax.Array | None = None) -> jax.Array:
        """[*shape] the log-likelihood of what `sample` draws, of any of it; scaled intervals have length 2."""
        choices = self.num_choices if allowed is None else jnp.sum(allowed, axis=-1)
        log_prob = -jnp.sum(jnp.log(jnp.where(self.num_choices > 0, choices, 2)), axis=-1)
        return jnp.broadcast_to(log_prob, shape)

    # Masks: what the environment allows. It knows the choices of its finite sets, all of them or none.

    @functools.cached_property
    def mask_sizes(self) -> np.ndarray:
        """[D] how many entries of a mask speak of each sub-action: its choices, or none for an interval."""
        return np.array([a.n if isinstance(a, Discrete) else 0 for a in self.subactions])

    def allowed(self, mask: jax.Array) -> jax.Array | None:
        """[..., M] one entry for each choice of each finite set -> [..., D, K] padded; None, everything, for M = 0."""
        if mask.shape[-1] == 0:
            return None
        owner = np.repeat(np.arange(self.dimensions), self.mask_sizes)
        choice = np.concatenate([np.arange(n) for n in self.mask_sizes])
        unmasked = np.arange(max(1, self.num_choices.max())) < np.maximum(self.num_choices, 1)[:, None]
        full = jnp.broadcast_to(unmasked, (*mask.shape[:-1], *unmasked.shape))
        return full.at[..., owner, choice].set(mask)

    def mask_from_env(self, mask: Any) -> np.ndarray:
        """An environment's mask -> [M] bool.

        Either one flat array over the choices of all finite sets, in order, or nested as the space itself, as
        `space.sample(mask)` of Gymnasium takes it, with None for what is not masked.
        """
        size = int(self.mask_sizes.sum())
        is_nested = isinstance(mask, dict | tuple | list) or isinstance(self.space, gymnasium.spaces.MultiBinary)
        if not is_nested and np.size(mask) == size:
            flat = np.ravel(mask)
        elif self.space is not None and is_nested:
            flat = np.concatenate([np.ones(0), *nested.mask_leaves(self.space, mask)])
        else:
            raise nested.wrong_mask(f"shape {np.shape(mask)}", f"{size} entries")
        strange = flat[~np.isin(flat, (0, 1))]
        if len(strange):
            raise UserError(f"an action mask has the entry {strange[0]}: expected 0 and 1, or bool")
        flat = flat.astype(bool)
        owner = np.repeat(np.arange(self.dimensions), self.mask_sizes)
        empty = np.setdiff1d(owner, owner[flat])
        if len(empty):
            raise UserError(f"the action mask allows no choice of sub-action {empty[0]}: expected at least one")
        return flat

    def enumerate(self) -> np.ndarray:
        """[size, D] every action, the last sub-action varying fastest."""
        if not self.is_discrete:
            raise UserError("a continuous action space cannot be enumerated: give `bins`, or use the agent `aql`")
        index = np.array(list(itertools.product(*(range(n) for n in self.num_choices))), np.float32)
        return self._offset + self._step * index

    # Features.

    @functools.cached_property
    def _one_hot(self) -> np.ndarray:
        return np.array(
            [
                isinstance(a, Discrete) or (a.bins is not None and self.interval_encoding == "one-hot")
                for a in self.subactions
            ]
        )

    @functools.cached_property
    def values(self) -> np.ndarray:
        """[V] the sub-actions that are a value among the features, not a choice."""
        return np.flatnonzero(~self._one_hot)

    @functools.cached_property
    def feature_owner(self) -> np.ndarray:
        """[F] the sub-action that each feature of `encode` describes."""
        return np.repeat(np.arange(self.dimensions), np.where(self._one_hot, self.num_choices, 1))

    @functools.cached_property
    def _feature_value(self) -> np.ndarray:
        """[F] the value of the choice that a one-hot feature stands for."""
        owner = self.feature_owner
        choice = np.arange(len(owner)) - np.searchsorted(owner, owner)
        return self._offset[owner] + self._step[owner] * choice

    def encode(self, action: jax.Array) -> jax.Array:
        """[..., D] actions -> [..., F] features: one-hot choices and scaled values, in the order of sub-actions."""
        if not self._one_hot.any():
            return action
        return self._feature(jnp.asarray(action)[..., self.feature_owner])

    def project(self, action: jax.Array, kernel: jax.Array) -> jax.Array:
        """`encode(action) @ kernel`: actions [..., D] and a kernel [F, H] -> [..., H].

        A product with ones and zeros is fast where there are few, and hopeless for thousands of choices: there the
        rows of the choices are looked up.
        """
        if len(kernel) <= max(MOST_MULTIPLIED, MOST_MULTIPLIED_EACH * self.dimensions):
            return self.encode(action) @ kernel
        first = np.searchsorted(self.feature_owner, np.arange(self.dimensions))
        rows = kernel[first + jnp.where(self._one_hot, self.to_index(action), 0)]  # [..., D, H]
        return jnp.sum(rows * jnp.where(self._one_hot, 1, action)[..., None], axis=-2)

    def decode(self, features: jax.Array) -> jax.Array:
        """The inverse of `encode`."""
        if not self._one_hot.any():
            return features
        owns = self.feature_owner[:, None] == np.arange(self.dimensions)
        weight = np.where(self._one_hot[self.feature_owner], self._feature_value, 1)
        return features @ (owns * weight[:, None]).astype(np.float32)

    def set_feature(self, features: jax.Array, d: jax.Array, value: jax.Array) -> jax.Array:
        """[F, n] features (note the order) with those of sub-action d replaced by the ones of its values [n]."""
        if not self._one_hot.any():
            return jax.lax.dynamic_update_index_in_dim(features, value, d, 0)
        return jnp.where((self.feature_owner == d)[:, None], self._feature(value[:, None]).T, features)

    def _feature(self, own: jax.Array) -> jax.Array:
        """[..., F] the value of each feature's sub-action -> the feature."""
        is_choice = jnp.abs(own - self._feature_value) < 0.5 * self._step[self.feature_owner]
        return jnp.where(self._one_hot[self.feature_owner], is_choice, own)

    # The environment's side.

    @functools.cached_property
    def _scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """([D], [D]) centre and radius of each interval in the environment's units; choices stay as they are."""
        ends = [(-1.0, 1.0) if isinstance(a, Discrete) else (a.low, a.high) for a in self.subactions]
        low, high = np.array(ends, np.float64).T
        return (high + low) / 2, (high - low) / 2

    def to_env(self, action: np.ndarray) -> Any:
        """[..., D] actions -> the environment's own structure, leading axes kept in every leaf."""
        centre, radius = self._scaling
        scaled = centre + radius * np.asarray(action, np.float64)
        return scaled if self.space is None else nested.pack(self.space, scaled)

    def from_env(self, action: Any) -> np.ndarray:
        """The inverse of `to_env`: [..., D] float32."""
        centre, radius = self._scaling
        scaled = np.asarray(action, np.float64) if self.space is None else nested.unpack(self.space, action)
        return ((scaled - centre) / np.where(radius > 0, radius, 1)).astype(np.float32)

    @classmethod
    def from_gymnasium(cls, space: gymnasium.Space, bins: int | None = None) -> "ActionSpace":
        """From a Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict, nested to any depth."""
        return cls(tuple(nested.subactions(space)), space=space).with_bins(bins)

    @classmethod
    def from_dm_env(cls, spec: Any, bins: int | None = None) -> "ActionSpace":
        """From dm_env's BoundedArray and DiscreteArray, also nested in dicts, tuples and lists."""
        return cls.from_gymnasium(nested.from_dm_env(spec), bins)
