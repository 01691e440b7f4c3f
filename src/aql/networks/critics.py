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
    return _standardise_forward(x)[0]


def _standardise_forward(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    mean = _mean(x)
    scale = jax.lax.rsqrt(jnp.maximum(_mean(x * x) - mean * mean, 0) + 1e-6)
    y = (x - mean) * scale
    return y, (y, scale)


def _standardise_backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    """dx = (dy - mean(dy) - y * mean(dy * y)) / deviation."""
    y, scale = saved
    return ((gradient - _mean(gradient) - y * _mean(gradient * y)) * scale,)


def _mean(x: jax.Array) -> jax.Array:
    weights = jnp.full((x.shape[-1], 1), 1 / x.shape[-1], x.dtype)
    return jnp.matmul(x, weights, precision=jax.lax.Precision.HIGHEST)  # accelerators would round


standardise.defvjp(_standardise_forward, _standardise_backward)


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
    """One linear layer of the action's features and, where it is `curved`, of the squares of its values.

    Squares begin as nothing.
    """

    space: ActionSpace
    size: int
    curved: bool = False

    @nn.compact
    def __call__(self, action: jax.Array, share: jax.Array | float = 1.0) -> jax.Array:
        """[..., D] -> [..., size], with a share of the squares."""
        shape = (len(self.space.feature_owner), self.size)
        linear = self.space.project(action, self.param("kernel", nn.initializers.lecun_normal(), shape))
        if not self.curved or not len(self.space.values):
            return linear
        squares = self.param("squares", nn.initializers.zeros, (len(self.space.values), self.size))
        return linear + jnp.square(action[..., self.space.values]) @ (share * squares)


class Head(nn.Module):
    """A linear layer for Q and predictions: one is faster than two, and candidates need its first output only.

    Its biases count `bias_unit` each. Adam moves every parameter alike: so a few hundred updates bring a bias to where
    Q is, where it would otherwise be up to all units together, and what they have to tell would drown in it.
    """

    units: int
    size: int
    bias_unit: float = 1.0

    def setup(self) -> None:
        """The two parameters."""
        self.kernel = self.param("kernel", nn.initializers.lecun_normal(), (self.units, self.size))
        self.bias = self.param("bias", nn.initializers.zeros, (self.size,))

    def __call__(self, units: jax.Array, first: int | None = None) -> jax.Array:
        """[..., H] -> [..., size], or the first ones of these only."""
        return units @ self.kernel[:, :first] + self.bias_unit * self.bias[:first]

    @property
    def level(self) -> jax.Array:
        """[] where Q is, but for what states and actions make of it."""
        return self.bias_unit * self.bias[0]


class Critic(nn.Module):
    """Q(s, a) = w . relu(f(s) + W a): the state's half is computed once, however many actions are scored.

    From the same units `num_predictions` numbers are said about what follows, P for short.

    Among many sub-actions each is so small a part of a unit that Q is all but linear in it: the best is at a bound, and
    a body pulls at full strength with every muscle. A critic with `curvature` sees squares, too, and may prefer the
    middle. As long as next to nothing is earned it would prefer to save strength, and never get up: so squares count
    only once Q's level is above this much, and in full when it is above half as much again.
    """

    space: ActionSpace
    layers: tuple[int, ...]
    layer_norm: bool = False
    num_predictions: int = 0
    bias_unit: float = 1.0
    curvature: float | None = None

    def setup(self) -> None:
        """Two towers that end in the same width, and the outputs."""
        width = self.layers[-1]
        self.state_tower = Tower(self.layers, self.layer_norm)
        self.action_tower = ActionTower(self.space, width, curved=self.curvature is not None)
        self.output = Head(width, 1 + self.num_predictions, self.bias_unit)

    def state(self, embedding: jax.Array) -> jax.Array:
        """[..., E] -> [..., H], the state's half."""
        return self.state_tower(embedding)

    def value(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Q of state halves [..., H] and actions [..., D] of the same leading shape: [...]."""
        return self.output(self._units(state, action), first=1)[..., 0]

    def outputs(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Q, and after it what is predicted: [..., 1 + P]."""
        return self.output(self._units(state, action))

    def _units(self, state: jax.Array, action: jax.Array) -> jax.Array:
        return nn.relu(state + self.action_tower(action, self._share_of_squares()))

    def _share_of_squares(self) -> jax.Array | float:
        if not self.curvature:
            return 1.0
        return jax.lax.stop_gradient(jnp.clip(2 * (self.output.level / self.curvature - 1), 0, 1))

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
