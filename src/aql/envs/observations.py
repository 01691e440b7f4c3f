"""From the observations of an environment to the arrays that networks get."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from aql import nested
from aql.errors import UserError

MOST_CHANNELS = 16  # of a picture whose first axis they are: stacked frames, mostly
ROUNDING = 1e-5  # how far a float may be outside of its bounds, relative to them
LONGEST_WORDS = 200  # of an observation in an error
FLOAT = np.dtype(np.float32)


class Parts(NamedTuple):
    """The images and numbers of an observation: an image or numbers as they are, or both `packed` into a row of bytes.

    Packed, the images come first, as they are, then the numbers as float32. So whatever stores, sends and replays
    observations has one array to deal with, and images stay small.
    """

    images: tuple[tuple[int, ...], ...]  # [height, width, channels] of each
    numbers: int
    packed: bool = True

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: np.dtype) -> "Parts":
        """Of an array that is an image, if it has the shape and type of one, or else numbers."""
        if len(shape) == 3 and dtype == np.uint8:
            return cls((shape,), 0, packed=False)
        return cls((), math.prod(shape), packed=False)

    def split(self, observation: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        """Observations [B, T, ...] -> each image [B, T, height, width, channels], and the numbers [B, T, numbers]."""
        if self.packed:
            return self.unpack(observation)
        if self.images:
            return [observation], jnp.zeros((*observation.shape[:2], 0))
        return [], observation.reshape(*observation.shape[:2], self.numbers)

    @property
    def num_bytes(self) -> int:
        """Of a row."""
        return sum(math.prod(shape) for shape in self.images) + 4 * self.numbers

    def pack(self, images: Sequence[np.ndarray], numbers: np.ndarray) -> np.ndarray:
        """One observation's images and its numbers, float32, as a row of bytes."""
        return np.concatenate([*(image.reshape(-1) for image in images), numbers.view(np.uint8)])

    def unpack(self, rows: jax.typing.ArrayLike) -> tuple[list[jax.Array], jax.Array]:
        """Rows [..., num_bytes] -> each image [..., height, width, channels], and the numbers [..., numbers]."""
        rows = jnp.asarray(rows)
        *leading, _ = rows.shape
        ends = list(itertools.accumulate(math.prod(shape) for shape in self.images))
        *images, rest = jnp.split(rows, ends, axis=-1)
        shaped = [image.reshape(*leading, *shape) for image, shape in zip(images, self.images, strict=True)]
        return shaped, jax.lax.bitcast_convert_type(rest.reshape(*leading, self.numbers, 4), jnp.float32)


class Observations:
    """Observations that are arrays of one shape and type already."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype = FLOAT, parts: Parts | None = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.parts = parts or Parts.of(shape, dtype)

    def describe(self) -> str:
        """What a network gets to see."""
        return f"{self.shape} of {self.dtype}"

    def one(self, observation: Any) -> np.ndarray:
        """One observation as an array of `shape`."""
        return self._checked(_numbers(observation)[None])[0]

    def batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """[B, *shape] of a batch or of a single observation, and whether it was a single one."""
        array = _numbers(observation)
        single = array.ndim == len(self.shape)
        return self._checked(array[None] if single else array), single

    def _checked(self, batch: np.ndarray) -> np.ndarray:
        if batch.shape[1:] != self.shape:
            raise UserError(f"an observation has shape {batch.shape[1:]}: expected {self.shape}")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is told below
            array = batch.astype(self.dtype, copy=False)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UserError(
                "an observation has an entry that is infinite or not a number as float32: mend the environment"
            )
        return array


class BoxObservations(Observations):
    """Entries keep to their bounds. Images stay bytes, with their channels last; all else becomes float32."""

    def __init__(self, space: spaces.Box) -> None:
        shape = space.shape
        self._given = shape
        self._channels_first = is_image(space) and shape[0] <= MOST_CHANNELS and shape[0] < min(shape[1:])
        if self._channels_first:
            shape = (*shape[1:], shape[0])
        super().__init__(shape, np.dtype(np.uint8) if is_image(space) else FLOAT)
        self._bounds = low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._low, self._high = low - ROUNDING * (1 + abs(low)), high + ROUNDING * (1 + abs(high))
        # Bytes that may be anything need no look at every one of them.
        self._any_byte = bool(space.dtype == np.uint8 and (low == 0).all() and (high == 255).all())
        self._bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())

    def _checked(self, batch: np.ndarray) -> np.ndarray:
        if batch.shape[1:] != self._given:
            raise UserError(f"an observation has shape {batch.shape[1:]}: expected {self._given}")
        if self.dtype == np.uint8 and batch.dtype.kind == "f":
            raise UserError(f"an image has the type {batch.dtype}: expected uint8, whole numbers from 0 to 255")
        if self._bounded and not (self._any_byte and batch.dtype == np.uint8):
            outside = (batch < self._low) | (batch > self._high)
            if outside.any():
                place = tuple(int(i) for i in np.argwhere(outside)[0])
                entry = place[1] if len(place) == 2 else place[1:]
                low, high = (bound[place[1:]] for bound in self._bounds)
                raise UserError(
                    f"an observation has {batch[place]:g} in entry {entry}, outside of its space's [{low:.4g}, "
                    f"{high:.4g}]: widen the space (infinite bounds are fine) or clip the observation"
                )
        return super()._checked(np.moveaxis(batch, 1, -1) if self._channels_first else batch)


class NestedObservations(Observations):
    """Finite sets become one-hot, all parts one vector; images among them keep their shape, packed with the rest."""

    def __init__(self, space: gymnasium.Space) -> None:
        self._space = space
        self._leaves = list(nested.leaves(space))
        self._read = _reader(space)
        images = tuple(BoxObservations(leaf).shape for _, leaf in self._leaves if is_image(leaf))
        numbers = sum(spaces.utils.flatdim(leaf) for _, leaf in self._leaves if not is_image(leaf))
        parts = Parts(images, numbers, packed=bool(images))
        if parts.packed:
            super().__init__((parts.num_bytes,), np.dtype(np.uint8), parts)
        else:
            super().__init__((numbers,))

    def describe(self) -> str:
        """The images and how many numbers."""
        if not self.parts.packed:
            return super().describe()
        images, numbers = [f"an image {shape}" for shape in self.parts.images], self.parts.numbers
        beside = {0: [], 1: ["a number"]}.get(numbers, [f"{numbers} numbers"])
        return " and ".join(images + beside)

    def one(self, observation: Any) -> np.ndarray:
        """One observation as a vector, or as a row of bytes."""
        read = self._read(observation)
        values = [(leaf, nested.at(read, path)) for path, leaf in self._leaves]
        images = [value for leaf, value in values if is_image(leaf)]
        flat = [np.asarray(spaces.utils.flatten(leaf, value)) for leaf, value in values if not is_image(leaf)]
        numbers = np.concatenate([np.zeros(0, FLOAT), *flat], dtype=FLOAT, casting="same_kind")
        return self.parts.pack(images, numbers) if self.parts.packed else numbers

    def batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """[B, n] of a batch, stacked leaf by leaf as in Gymnasium, or of a single observation."""
        try:
            observation = nested.tuples(self._space, observation)
            leaves = [(nested.at(observation, path), space) for path, space in self._leaves]
            extra = {np.ndim(leaf) - len(space.shape or ()) for leaf, space in leaves}
            lengths = {len(leaf) for leaf, _ in leaves} if extra == {1} else set()
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _outside(self._space, observation) from error
        if len(lengths) == 1 and lengths != {0}:
            return np.stack([self.one(nested.row(observation, i)) for i in range(*lengths)]), False
        if extra == {0}:
            return self.one(observation)[None], True
        self.one(observation)  # says which part is wrong, if it is a single one
        raise _outside(self._space, observation)


def _numbers(observation: Any) -> np.ndarray:
    try:
        array = np.asarray(observation)
    except ValueError as error:
        raise UserError(f"an observation is ragged ({error}): expected an array") from error
    if array.dtype.kind not in "biuf":
        raise UserError(f"an observation is {observation!r}, of {array.dtype}: expected an array of numbers")
    return array


def _reader(space: gymnasium.Space) -> Callable[[Any], Any]:
    """What gives an observation of the space with every leaf in its own type, and refuses one outside of it."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        readers = {name: _reader(part) for name, part in nested.parts(space).items()}
        kind: Any = dict if isinstance(space, spaces.Dict) else tuple | list

        def read_parts(observation: Any) -> Any:
            if not isinstance(observation, kind) or len(observation) != len(readers):
                raise _outside(space, observation)
            read = {}
            for name, reader in readers.items():
                try:
                    read[name] = reader(observation[name])
                except KeyError as error:
                    raise _outside(space, observation) from error
                except UserError as error:
                    raise UserError(f"in part {name!r}, {error}") from error
            return read if isinstance(space, spaces.Dict) else tuple(read.values())

        return read_parts
    if isinstance(space, spaces.Box):
        return BoxObservations(space).one

    def read_choices(observation: Any) -> Any:
        value = _numbers(observation)
        if value.dtype.kind == "f" or not space.contains(value.astype(space.dtype)):
            raise _outside(space, observation)
        return value.astype(space.dtype)

    return read_choices


def _outside(space: gymnasium.Space, observation: Any) -> UserError:
    words = " ".join(repr(observation).split())
    brief = words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}..."
    return UserError(f"the observation {brief} is not in {space}, nor a batch of it")


def is_image(space: gymnasium.Space) -> TypeGuard[spaces.Box]:
    """Whether the space is of pictures, [height, width, channels] or [channels, height, width] uint8."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def from_gymnasium(space: gymnasium.Space) -> Observations:
    """How observations of the space are read: images as they are, another Box as float32, all else as a vector."""
    leaves = [leaf for _, leaf in nested.leaves(space)]
    if isinstance(space, spaces.Box):
        return BoxObservations(space)
    if all(
        isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) for leaf in leaves
    ):
        return NestedObservations(space)
    raise UserError(
        f"the observation space {space} is not supported: expected Box, Discrete, MultiDiscrete, "
        "MultiBinary, Tuple or Dict; wrap the environment in gymnasium.wrappers.TransformObservation"
    )
