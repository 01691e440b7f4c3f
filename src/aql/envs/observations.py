"""From the observations of an environment to the arrays that networks get."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aql.errors import UserError


class Observations:
    """Observations that are arrays of one shape and type already."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype

    def one(self, observation: Any) -> np.ndarray:
        """One observation as an array of `shape`."""
        return self._checked(np.asarray(observation, self.dtype)[None])[0]

    def batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """[B, *shape] of a batch or of a single observation, and whether it was a single one."""
        array = np.asarray(observation, self.dtype)
        single = array.ndim == len(self.shape)
        return self._checked(array[None] if single else array), single

    def _checked(self, batch: np.ndarray) -> np.ndarray:
        if batch.shape[1:] != self.shape:
            raise UserError(f"an observation has shape {batch.shape[1:]}: expected {self.shape}")
        if not np.isfinite(batch).all():
            raise UserError("an observation has an entry that is infinite or not a number: mend the environment")
        return batch


class FlatObservations(Observations):
    """Finite sets become one-hot; what is nested becomes one vector, as `gymnasium.spaces.utils.flatten` does it."""

    def __init__(self, space: gymnasium.Space) -> None:
        self._space = space
        flat = spaces.utils.flatten_space(space)
        assert isinstance(flat, spaces.Box)
        super().__init__(flat.shape, np.dtype(np.float32))

    def one(self, observation: Any) -> np.ndarray:
        """One observation as a vector."""
        try:
            flat = spaces.utils.flatten(self._space, observation)
        except (KeyError, IndexError, TypeError, ValueError, AssertionError, AttributeError) as error:
            raise UserError(f"the observation {observation!r} is not in {self._space}") from error
        return super().one(flat)

    def batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """[B, n] of a batch, stacked leaf by leaf as in Gymnasium, or of a single observation."""
        if self._space.contains(observation):
            return self.one(observation)[None], True
        leaf = observation
        while isinstance(leaf, dict | tuple) and leaf:
            leaf = next(iter(leaf.values())) if isinstance(leaf, dict) else leaf[0]
        try:
            batched = gymnasium.vector.utils.batch_space(self._space, len(leaf))
            rows = list(gymnasium.vector.utils.iterate(batched, observation))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UserError(f"the observation {observation!r} is not in {self._space}, nor a batch of it") from error
        return np.stack([self.one(row) for row in rows]), False


def is_image(space: gymnasium.Space) -> bool:
    """Whether the space is of pictures, [height, width, channels] uint8."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def from_gymnasium(space: gymnasium.Space) -> Observations:
    """How observations of the space are read: an image as it is, another Box as float32, all else as a vector."""
    finite = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    if isinstance(space, spaces.Box):
        return Observations(space.shape, np.dtype(np.uint8 if is_image(space) else np.float32))
    images = [name for name, part in space.spaces.items() if is_image(part)] if isinstance(space, spaces.Dict) else []
    if images:
        raise UserError(
            f"the observation is a Dict with images ({', '.join(images)}): name the part to see by the id, "
            f"as in ID?observe={images[0]}, or use gymnasium.wrappers.TransformObservation"
        )
    if isinstance(space, finite | spaces.Dict | spaces.Tuple) and space.is_np_flattenable:
        return FlatObservations(space)
    raise UserError(
        f"the observation space {space} is not supported: expected Box, Discrete, MultiDiscrete, "
        "MultiBinary, Tuple or Dict; wrap the environment in gymnasium.wrappers.TransformObservation"
    )
