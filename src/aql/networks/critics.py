"""Q networks of Figure 1, a state tower and an action tower, summed; and the value of a state alone."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from aql.actions import ActionSpace


@jax.custom_vjp
def standardise(x: jax.Array) -> jax.Array:
    """Layer norm without parameters: [..., H] with mean 0 and deviation 1 over H.

    Means are products with a vector, and the gradient is written out: on a CPU, sums along the last axis are so slow
    that layer norm takes a sixth of an update otherwise.
    """
    return _standardise(x)[0]


def _standardise(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    mean = _mean(x)
    scale = jax.lax.rsqrt(jnp.maximum(_mean(x * x) - mean * mean, 0) + 1e-6)
    y = (x - mean) * scale
    return y, (y, scale)


def _standardise_gradient(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    """dx = (dy - mean(dy) - y * mean(dy * y)) / deviation."""
    y, scale = saved
    return ((gradient - _mean(gradient) - y * _mean(gradient * y)) * scale,)


def _mean(x: jax.Array) -> jax.Array:
    return x @ jnp.full((x.shape[-1], 1), 1 / x.shape[-1], x.dtype)


standardise.defvjp(_standardise, _standardise_gradient)


class Tower(nn.Module):
    """Linear layers with ReLU between them; the last one stays linear."""

    sizes: tuple[int, ...]
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., F] -> [..., sizes[-1]]."""
        for i, size in enumerate(self.sizes):
            x = nn.Dense(size)(x if i == 0 else nn.relu(x))
            if self.layer_norm:
                x = standardise(x)
        return x


class ActionTower(nn.Module):
    """One linear layer of the action's features."""

    space: ActionSpace
    size: int

    @nn.compact
    def __call__(self, action: jax.Array) -> jax.Array:
        """[..., D] -> [..., size]."""
        shape = (len(self.space.feature_owner), self.size)
        return self.space.project(action, self.param("kernel", nn.initializers.lecun_normal(), shape))


class Outputs(nn.Module):
    """A linear layer, the first output of which can be had alone."""

    size: int

    @nn.compact
    def __call__(self, x: jax.Array, first_only: bool = False) -> jax.Array:
        """[..., H] -> [..., size], or [...] if it is the first only."""
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.size))
        bias = self.param("bias", nn.initializers.zeros, (self.size,))
        return (x @ kernel[:, :1] + bias[:1])[..., 0] if first_only else x @ kernel + bias


class Critic(nn.Module):
    """Q(s, a) = w . relu(f(s) + W a): the state's half is computed once, however many actions are scored.

    From the same units `predicts` numbers can be said about what follows.
    """

    space: ActionSpace
    layers: tuple[int, ...]
    layer_norm: bool = False
    predicts: int = 0

    def setup(self) -> None:
        """Two towers that end in the same width, and the outputs."""
        self.state_tower = Tower(self.layers, self.layer_norm)
        self.action_tower = ActionTower(self.space, self.layers[-1])
        self.output = Outputs(1 + self.predicts)

    def state(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [..., H], the state's half."""
        return self.state_tower(embedding)

    def value(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Q of state halves [..., H] and actions [..., D] of the same leading shape: [...]."""
        return self.output(self._units(state, action), first_only=True)

    def outputs(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Q, and after it what is predicted: [..., 1 + P]."""
        return self.output(self._units(state, action))

    def _units(self, state: jax.Array, action: jax.Array) -> jax.Array:
        return nn.relu(state + self.action_tower(action))

    def __call__(self, embedding: jax.Array, action: jax.Array) -> jax.Array:
        """Q of states [..., E] and actions [..., D]: [...]."""
        return self.value(self.state(embedding), action)


class Value(nn.Module):
    """V(s) = w . relu(f(s)), with the critic's state tower."""

    layers: tuple[int, ...]
    layer_norm: bool = False

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [...]."""
        return nn.Dense(1)(nn.relu(Tower(self.layers, self.layer_norm)(embedding)))[..., 0]
