"""Networks for images and for memory, between the observation and the state embedding."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn


class Patches(nn.Module):
    """Two layers of patches that do not overlap, and a dense one: nothing but matrix products, which a CPU likes."""

    size: int
    layers: tuple[tuple[int, int], ...] = ((4, 32), (3, 64))  # side of a patch, features: 84 x 84 -> 21 x 21 -> 7 x 7

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        """[N, H, W, C] in 0..1 -> [N, size]."""
        x = image
        for side, features in self.layers:
            x = nn.relu(nn.Dense(features)(_cut(x, side)))
        return nn.relu(nn.Dense(self.size)(x.reshape(len(x), -1)))


def _cut(x: jax.Array, side: int) -> jax.Array:
    """[N, H, W, C] -> [N, H / side, W / side, side * side * C], padded with zeros if it does not fit."""
    height, width = (-(-length // side) for length in x.shape[1:3])
    padding = (height * side - x.shape[1], width * side - x.shape[2])
    x = jnp.pad(x, ((0, 0), (0, padding[0]), (0, padding[1]), (0, 0)))
    x = x.reshape(len(x), height, side, width, side, x.shape[-1])
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(len(x), height, width, -1)


class ResNet(nn.Module):
    """The deep network of IMPALA (Espeholt et al. 2018), which the paper uses: sections of two residual blocks."""

    size: int
    channels: tuple[int, ...] = (16, 32, 32)

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        """[N, H, W, C] in 0..1 -> [N, size]."""
        x = image
        for channels in self.channels:
            x = nn.Conv(channels, (3, 3))(x)
            x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
            for _ in range(2):
                block = nn.Conv(channels, (3, 3))(nn.relu(x))
                x = x + nn.Conv(channels, (3, 3))(nn.relu(block))
        return nn.relu(nn.Dense(self.size)(nn.relu(x).reshape(len(x), -1)))


class Memory(nn.Module):
    """An LSTM over time that forgets everything where an episode begins."""

    size: int

    @nn.compact
    def __call__(self, state: jax.Array, x: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        """State [B, 2 * size] before the inputs [B, T, F] -> outputs [B, T, size], state after them."""

        def step(cell: nn.Module, carry: tuple[jax.Array, ...], inputs: tuple[jax.Array, ...]) -> tuple:
            x_t, first_t = inputs
            carry = tuple(jnp.where(first_t[:, None], 0, part) for part in carry)
            return cell(carry, x_t)

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
        carry, outputs = scan(nn.OptimizedLSTMCell(self.size), tuple(jnp.split(state, 2, axis=-1)), (x, first))
        return outputs, jnp.concatenate(carry, axis=-1)


class Torso(nn.Module):
    """Images, each with its network, numbers beside them, and memory: any of them may be missing."""

    networks: tuple[nn.Module, ...]
    memory_size: int

    @nn.compact
    def __call__(
        self, images: Sequence[jax.Array], numbers: jax.Array, first: jax.Array, state: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Bytes [B, T, H, W, C] of each image, numbers [B, T, X], where episodes begin [B, T], state [B, S] before.

        Gives embeddings [B, T, E] and the state after.
        """
        seen = []
        for network, image in zip(self.networks, images, strict=True):
            flat = image.reshape(-1, *image.shape[2:]).astype(jnp.float32) / 255
            seen.append(network(flat).reshape(*image.shape[:2], -1))
        x = jnp.concatenate([*seen, numbers], axis=-1)
        if self.memory_size:
            x, state = Memory(self.memory_size)(state, x, first)
        return x, state
