"""The proposal mu(a | s): a distribution over whole actions from which candidates are drawn.

Every sub-action has a softmax over its choices or, if it is continuous, a Gaussian with fixed deviation. With
`autoregressive`, the parameters of sub-action d are linear in [features(s), encodings of sub-actions 1..d-1];
without, in features(s) alone.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from aql.actions import ActionSpace
from aql.networks.critics import Tower

NEGLIGIBLE = -1e9  # the logit of a choice that a sub-action does not have
MOST_UNROLLED = 16  # choices whose sampling is written out; compiling takes longer the more there are

Pick = Callable[[jax.Array, jax.Array, jax.Array | int], jax.Array]  # parameters [K, ...], noise [...], d -> values


class Likelihood(NamedTuple):
    """How the proposal sees given actions."""

    log_prob: jax.Array  # [...] log mu(a | s)
    entropy: jax.Array  # [...] sum of the conditional entropies along the prefix of a


class Conditionals(NamedTuple):
    """What the proposal says about each sub-action of a given action, knowing those before it."""

    probability: jax.Array  # [..., D, K] of each choice; 0 for padding
    mean: jax.Array  # [..., D] of the Gaussian, where a sub-action is continuous
    std: jax.Array  # [] its deviation


class Proposal(nn.Module):
    """mu(a | s). Parameters of all sub-actions live in one array [..., D, K], padded to the largest K."""

    space: ActionSpace
    layers: tuple[int, ...]
    autoregressive: bool = True
    gaussian_std: float = 0.5
    clipped: bool = False  # whether a Gaussian's value at a bound counts as all values beyond it

    @property
    def _width(self) -> int:
        return max(1, int(self.space.num_choices.max()))

    @property
    def _conditional(self) -> bool:
        """Whether sub-actions have others before them to look at."""
        return self.autoregressive and self.space.dimensions > 1

    @functools.cached_property
    def _padding(self) -> np.ndarray:
        """[D, K] 0 for a real choice, NEGLIGIBLE for padding."""
        real = np.arange(self._width) < np.maximum(self.space.num_choices, 1)[:, None]
        return np.where(real, 0.0, NEGLIGIBLE).astype(np.float32)

    def setup(self) -> None:
        """A tower, one output layer for all sub-actions and the weights of their prefixes."""
        shape = (self.space.dimensions, self._width)
        self.tower = Tower(self.layers)
        self.head = nn.DenseGeneral(shape)
        if self._conditional:
            scale = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", in_axis=0, out_axis=(1, 2))
            self.prefix = self.param("prefix", scale, (len(self.space.feature_owner), *shape))

    def __call__(self, embedding: jax.Array, allowed: jax.Array | None = None) -> jax.Array:
        """[..., E] -> [..., D, K], what the state alone says about each sub-action."""
        parameters = self.head(nn.relu(self.tower(embedding))) + self._padding
        return parameters if allowed is None else jnp.where(allowed, parameters, NEGLIGIBLE)

    def _prefix_weights(self) -> jax.Array:
        """[F, D, K] weights from the features of an action to its sub-actions, 0 unless the feature is earlier."""
        earlier = self.space.feature_owner[:, None] < np.arange(self.space.dimensions)
        return self.prefix * earlier[:, :, None]

    def likelihood(self, embedding: jax.Array, action: jax.Array, allowed: jax.Array | None = None) -> Likelihood:
        """The log-likelihood of actions [..., D] in states [..., E], and the entropy along them.

        A Gaussian's density is taken at the clipped action with the unclipped mean. If it is `clipped`, a value at a
        bound has the probability of all beyond it instead, as `sample` draws it (Fujita & Maeda 2018). Its entropy is
        a constant and gives no gradient.
        """
        parameters = self._along(embedding, action, allowed)
        log_p = jax.nn.log_softmax(parameters, axis=-1)
        chosen = jax.nn.one_hot(self.space.to_index(action), self._width)
        choice_log_prob = jnp.sum(jnp.where(chosen > 0, log_p, 0), axis=-1)
        choice_entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
        deviation = (action - parameters[..., 0]) / self.gaussian_std
        normaliser = math.log(self.gaussian_std * math.sqrt(2 * math.pi))
        value_log_prob = -0.5 * jnp.square(deviation) - normaliser
        if self.clipped:
            beyond = jax.scipy.special.log_ndtr((action * parameters[..., 0] - 1) / self.gaussian_std)
            value_log_prob = jnp.where(jnp.abs(action) >= 1, beyond, value_log_prob)
        is_choice = self.space.num_choices > 0
        log_prob = jnp.where(is_choice, choice_log_prob, value_log_prob)
        entropy = jnp.where(is_choice, choice_entropy, 0.5 + normaliser)
        return Likelihood(jnp.sum(log_prob, axis=-1), jnp.sum(entropy, axis=-1))

    def conditionals(self, embedding: jax.Array, action: jax.Array, allowed: jax.Array | None = None) -> Conditionals:
        """How likely each choice is on the way to actions [..., D] in states [..., E]."""
        parameters = self._along(embedding, action, allowed)
        return Conditionals(jax.nn.softmax(parameters, axis=-1), parameters[..., 0], jnp.asarray(self.gaussian_std))

    def _along(self, embedding: jax.Array, action: jax.Array, allowed: jax.Array | None) -> jax.Array:
        """[..., D, K] the parameters of each sub-action, given those of the actions [..., D] before it."""
        parameters = self(embedding, allowed)
        if self._conditional:
            weights = self._prefix_weights()
            prefix = self.space.project(action, weights.reshape(len(weights), -1))
            parameters += prefix.reshape(parameters.shape)
        return parameters

    def sample(self, embedding: jax.Array, key: jax.Array, count: int, allowed: jax.Array | None = None) -> jax.Array:
        """[B, E] -> `count` independent actions for each state: [B, count, D].

        Samples lie along the last axis while they are made, so that each of the D steps is a few operations on
        long rows: on a CPU this is several times faster than the same loop with samples in front.
        """
        noise = jax.random.uniform(key, (self.space.dimensions, embedding.shape[0], count))
        return self._choose(embedding, noise, self._invert, allowed)

    def mode(self, embedding: jax.Array, allowed: jax.Array | None = None) -> jax.Array:
        """[B, E] -> [B, D] the likeliest value of each sub-action, given those before it."""
        no_noise = jnp.zeros((self.space.dimensions, embedding.shape[0], 1))
        return self._choose(embedding, no_noise, self._peak, allowed)[:, 0]

    def _choose(self, embedding: jax.Array, noise: jax.Array, pick: Pick, allowed: jax.Array | None) -> jax.Array:
        """Sub-action after sub-action by `pick`, which may use the noise [D, B, n]: [B, n, D]."""
        dimensions, num_states, count = noise.shape
        base = jnp.transpose(self(embedding, allowed), (1, 2, 0))[..., None]  # [D, K, B, 1]
        if not self._conditional:
            columns = [pick(base[d], noise[d], d) for d in range(dimensions)]
            return jnp.stack(columns, axis=-1)

        def choose(features: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
            """Adds sub-action d to the features [F, B * count] of those before it."""
            d, base_d, weights_d, noise_d = inputs
            parameters = (weights_d @ features).reshape(-1, num_states, count) + base_d
            value = pick(parameters, noise_d, d).reshape(-1)
            return self.space.set_feature(features, d, value), None

        weights = jnp.transpose(self._prefix_weights(), (1, 2, 0))  # [D, K, F]
        nothing = jnp.zeros((weights.shape[-1], num_states * count))
        features, _ = jax.lax.scan(choose, nothing, (jnp.arange(dimensions), base, weights, noise))
        return self.space.decode(features.T).reshape(num_states, count, dimensions)

    def _invert(self, parameters: jax.Array, noise: jax.Array, d: jax.Array | int) -> jax.Array:
        """Sub-action d by inverse transform: parameters [K, ...] and uniform noise [...] -> values [...]."""
        if len(parameters) > MOST_UNROLLED:
            weights = jnp.exp(parameters - jnp.max(parameters, axis=0))
            edges = jnp.cumsum(weights, axis=0)
            # Long sums are not exact: rounding must not lead to what weighs nothing, as forbidden choices do.
            met = (edges > noise * edges[-1]) & (weights > 0)
            first = jnp.where(jnp.any(met, axis=0), jnp.argmax(met, axis=0), jnp.argmax(weights, axis=0))
            index = first.astype(jnp.float32)
        else:
            # One running sum per choice instead of a reduction over an axis of five: XLA makes one pass of it.
            highest = functools.reduce(jnp.maximum, parameters)
            sums = list(itertools.accumulate(jnp.exp(p - highest) for p in parameters))
            below = [(edge <= noise * sums[-1]).astype(jnp.float32) for edge in sums[:-1]]
            index = sum(below, start=jnp.zeros(noise.shape))
        last = jnp.asarray(np.maximum(self.space.num_choices - 1, 0), jnp.float32)[d]
        choice = self.space.from_index(jnp.minimum(index, last), d)
        if self.space.is_discrete:
            return choice
        gaussian = parameters[0] + self.gaussian_std * jax.scipy.special.ndtri(jnp.clip(noise, 1e-6, 1 - 1e-6))
        return jnp.where(jnp.asarray(self.space.num_choices)[d] > 0, choice, jnp.clip(gaussian, -1, 1))

    def _peak(self, parameters: jax.Array, noise: jax.Array, d: jax.Array | int) -> jax.Array:
        """Sub-action d where it is likeliest: parameters [K, ...] -> values [...]."""
        choice = self.space.from_index(jnp.argmax(parameters, axis=0).astype(jnp.float32), d)
        is_choice = jnp.asarray(self.space.num_choices)[d] > 0
        return jnp.broadcast_to(jnp.where(is_choice, choice, jnp.clip(parameters[0], -1, 1)), noise.shape)
