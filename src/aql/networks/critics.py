"""Q networks of Figure 1, a state tower and an action tower, summed; and the value of a state alone."""

import jax
from flax import linen as nn


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
                x = nn.LayerNorm(use_bias=False, use_scale=False)(x)
        return x


class Critic(nn.Module):
    """Q(s, a) = w . relu(f(s) + W a): the state's half is computed once, however many actions are scored."""

    layers: tuple[int, ...]
    layer_norm: bool = False

    def setup(self) -> None:
        """Two towers that end in the same width, and the output."""
        self.state_tower = Tower(self.layers, self.layer_norm)
        self.action_tower = nn.Dense(self.layers[-1], use_bias=False)
        self.output = nn.Dense(1)

    def state(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [..., H], the state's half."""
        return self.state_tower(embedding)

    def value(self, state: jax.Array, features: jax.Array) -> jax.Array:
        """State halves [..., H] and action features [..., F] of the same leading shape -> [...]."""
        return self.output(nn.relu(state + self.action_tower(features)))[..., 0]

    def __call__(self, embedding: jax.Array, features: jax.Array) -> jax.Array:
        """Q of states [..., E] and action features [..., F]: [...]."""
        return self.value(self.state(embedding), features)


class Value(nn.Module):
    """V(s) = w . relu(f(s)), with the critic's state tower."""

    layers: tuple[int, ...]
    layer_norm: bool = False

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [...]."""
        return nn.Dense(1)(nn.relu(Tower(self.layers, self.layer_norm)(embedding)))[..., 0]
