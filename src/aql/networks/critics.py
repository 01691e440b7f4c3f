"""Q networks of Figure 1, a state tower and an action tower, summed; and the value of a state alone."""

import jax
from flax import linen as nn

from aql.actions import ActionSpace


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


class ActionTower(nn.Module):
    """One linear layer of the action's features."""

    space: ActionSpace
    size: int

    @nn.compact
    def __call__(self, action: jax.Array) -> jax.Array:
        """[..., D] -> [..., size]."""
        shape = (len(self.space.feature_owner), self.size)
        return self.space.project(action, self.param("kernel", nn.initializers.lecun_normal(), shape))


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
        self.output = nn.Dense(1)
        if self.predicts:
            self.prediction = nn.Dense(self.predicts)

    def state(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [..., H], the state's half."""
        return self.state_tower(embedding)

    def _units(self, state: jax.Array, action: jax.Array) -> jax.Array:
        return nn.relu(state + self.action_tower(action))

    def value(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """State halves [..., H] and actions [..., D] of the same leading shape -> [...]."""
        return self.output(self._units(state, action))[..., 0]

    def predict(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """State halves [..., H] and actions [..., D] of the same leading shape -> [..., P]."""
        return self.prediction(self._units(state, action))

    def __call__(self, embedding: jax.Array, action: jax.Array) -> jax.Array:
        """Q of states [..., E] and actions [..., D]: [...]."""
        state = self.state(embedding)
        if self.is_initializing() and self.predicts:
            self.predict(state, action)
        return self.value(state, action)


class Value(nn.Module):
    """V(s) = w . relu(f(s)), with the critic's state tower."""

    layers: tuple[int, ...]
    layer_norm: bool = False

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [...]."""
        return nn.Dense(1)(nn.relu(Tower(self.layers, self.layer_norm)(embedding)))[..., 0]
