"""Gymnasium's spaces, nested to any depth, as flat lists: of sub-actions, their names, their values, their masks."""

import dataclasses
import functools
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from aql.errors import UserError

MOST_INTEGERS = 64  # values of an integer interval that are all choices; of longer ones some are, as of the real
UNLIMITED = 1e9  # no bound: some libraries spell it with a finite number that is larger


@dataclasses.dataclass(frozen=True)
class Discrete:
    """A sub-action with `n` choices that have no order."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UserError(f"a discrete sub-action has {self.n} choices: at least 1 is needed")


@dataclasses.dataclass(frozen=True)
class Interval:
    """A sub-action in [low, high]: continuous, or `bins` equally spaced values that include both ends.

    With `integers`, these are the whole numbers, however many bins others have.
    """

    low: float
    high: float
    bins: int | None = None
    integers: bool = False

    def __post_init__(self) -> None:
        if not (abs(self.low) < UNLIMITED and abs(self.high) < UNLIMITED):
            raise UserError(
                f"the interval [{self.low}, {self.high}] is unbounded: uniform search needs finite bounds; give them "
                "by the id, as in VizdoomDeathmatch-v1?bound=10, or by gymnasium.wrappers.TransformAction"
            )
        if not self.low <= self.high:
            raise UserError(f"the interval [{self.low}, {self.high}] is empty: low must not be above high")
        if self.bins is not None and self.bins < 2:
            raise UserError(f"bins is {self.bins}: an interval needs at least 2 values, or none for continuous")


SubAction = Discrete | Interval
Path = tuple[Any, ...]  # keys and places, from the outside in


def parts(space: gymnasium.Space) -> dict[Any, gymnasium.Space]:
    """What a Dict or Tuple is made of, in order, by key or place; nothing for the others."""
    if isinstance(space, gymnasium.spaces.Dict):
        return dict(space.spaces)
    return dict(enumerate(space.spaces)) if isinstance(space, gymnasium.spaces.Tuple) else {}


def leaves(space: gymnasium.Space, path: Path = ()) -> Iterator[tuple[Path, gymnasium.Space]]:
    """The parts of a space that are not nested themselves, and the way to each of them."""
    inside = parts(space)
    if not inside:
        yield path, space
    for name, part in inside.items():
        yield from leaves(part, (*path, name))


def at(value: Any, path: Path) -> Any:
    """What lies at the end of a way."""
    return functools.reduce(operator.getitem, path, value)


def tuples(space: gymnasium.Space, value: Any) -> Any:
    """The value, or what was stacked leaf by leaf, with a tuple where the space has one, also if it came as a list."""
    inside = parts(space)
    if isinstance(space, gymnasium.spaces.Tuple) and isinstance(value, list | tuple):
        return tuple(tuples(inside[i], part) for i, part in enumerate(value))
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(value, dict):
        return {name: tuples(inside[name], part) for name, part in value.items()}
    return value


def from_dm_env(spec: Any) -> gymnasium.Space:
    """The Gymnasium space of dm_env's specs; of what they are nested in, lists become tuples."""
    if isinstance(spec, Mapping):
        return gymnasium.spaces.Dict({name: from_dm_env(part) for name, part in spec.items()})
    if isinstance(spec, tuple | list):
        return gymnasium.spaces.Tuple([from_dm_env(part) for part in spec])
    if hasattr(spec, "num_values"):
        return gymnasium.spaces.Discrete(spec.num_values)
    if hasattr(spec, "minimum"):
        low, high = np.broadcast_to(spec.minimum, spec.shape), np.broadcast_to(spec.maximum, spec.shape)
        return gymnasium.spaces.Box(low.astype(spec.dtype), high.astype(spec.dtype), dtype=spec.dtype)
    raise UserError(
        f"the action spec {spec!r} is not supported: expected BoundedArray, DiscreteArray, or these in dicts and tuples"
    )


def row(stacked: Any, i: int) -> Any:
    """The i-th of what was stacked leaf by leaf, inside of dicts and tuples."""
    if isinstance(stacked, dict):
        return {name: row(part, i) for name, part in stacked.items()}
    return tuple(row(part, i) for part in stacked) if isinstance(stacked, tuple) else stacked[i]


def subactions(space: gymnasium.Space) -> Iterator[SubAction]:
    """The sub-actions of a Gymnasium space, in the order of `pack`."""
    if isinstance(space, gymnasium.spaces.Box):
        for low, high in zip(space.low.ravel(), space.high.ravel(), strict=True):
            count = int(high) - int(low) + 1 if np.issubdtype(space.dtype, np.integer) else 0
            if 1 < count <= MOST_INTEGERS:
                yield Interval(float(low), float(high), bins=count, integers=True)
            else:
                yield Interval(float(low), float(high))
    elif isinstance(space, gymnasium.spaces.Discrete):
        yield Discrete(int(space.n))
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        yield from (Discrete(int(n)) for n in space.nvec.ravel())
    elif isinstance(space, gymnasium.spaces.MultiBinary):
        yield from (Discrete(2) for _ in range(math.prod(space.shape)))
    elif isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.Dict):
        for child in parts(space).values():
            yield from subactions(child)
    else:
        raise UserError(
            f"the action space {space} is not supported: "
            "expected Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict"
        )


def names(space: gymnasium.Space) -> Iterator[str]:
    """How to reach each sub-action, in the order of `subactions`."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        for key, child in parts(space).items():
            yield from (f"[{key!r}]{rest}" for rest in names(child))
    else:
        assert space.shape is not None
        yield from ("".join(f"[{i}]" for i in place) for place in np.ndindex(space.shape))


def pack(space: gymnasium.Space, values: np.ndarray) -> Any:
    """[..., n] numbers, one per sub-action -> the space's own structure, leading axes kept in every leaf."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        children = parts(space).values()
        ends = np.cumsum([len(list(subactions(child))) for child in children])
        cut = np.split(values, ends[:-1], axis=-1)
        packed = [pack(child, part) for child, part in zip(children, cut, strict=True)]
        return (
            dict(zip(space.spaces, packed, strict=True)) if isinstance(space, gymnasium.spaces.Dict) else tuple(packed)
        )
    assert space.shape is not None
    leaf = values.reshape((*values.shape[:-1], *space.shape))
    if np.issubdtype(space.dtype, np.integer):
        leaf = np.rint(leaf) + _start(space)
    leaf = leaf.astype(space.dtype)
    if isinstance(space, gymnasium.spaces.Box):
        return np.clip(leaf, space.low, space.high, out=leaf)  # casting a bound may have rounded it outwards
    return leaf[()] if isinstance(space, gymnasium.spaces.Discrete) else leaf


def unpack(space: gymnasium.Space, action: Any) -> np.ndarray:
    """The inverse of `pack`."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        unpacked = [unpack(child, action[key]) for key, child in parts(space).items()]
        return np.concatenate(unpacked, axis=-1)
    assert space.shape is not None
    leaf = np.asarray(action, np.float64) - _start(space)
    return leaf.reshape((*leaf.shape[: leaf.ndim - len(space.shape)], -1))


def mask_leaves(space: gymnasium.Space, mask: Any) -> Iterator[np.ndarray]:
    """The masks of the finite sets in a space, flat, in the order of `subactions`."""
    sizes = [a.n for a in subactions(space) if isinstance(a, Discrete)]
    if mask is None:
        yield np.ones(sum(sizes))
    elif isinstance(space, gymnasium.spaces.Dict):
        if not isinstance(mask, dict) or set(mask) != set(space.spaces):
            raise wrong_mask(f"{mask!r}", f"a dict with the keys {list(space.spaces)}")
        for name, child in space.spaces.items():
            yield from mask_leaves(child, mask[name])
    elif isinstance(space, gymnasium.spaces.Tuple):
        if not isinstance(mask, tuple | list) or len(mask) != len(space.spaces):
            raise wrong_mask(f"{mask!r}", f"a tuple of {len(space.spaces)}")
        for child, part in zip(space.spaces, mask, strict=True):
            yield from mask_leaves(child, part)
    else:
        flat = _flat_mask(mask)
        if isinstance(space, gymnasium.spaces.MultiBinary) and len(flat) == len(sizes):
            # Gymnasium's way: 0 and 1 are the value that it must have, 2 is any.
            flat = np.stack([flat != 1, flat != 0], axis=-1).ravel()
        if len(flat) != sum(sizes):
            raise wrong_mask(f"{len(flat)} entries for {space}", f"{sum(sizes)}")
        yield flat


def _flat_mask(mask: Any) -> np.ndarray:
    """The numbers of an array, or of arrays in tuples and lists of any depth, in order."""
    if not isinstance(mask, tuple | list):
        return np.ravel(mask)
    return np.concatenate([np.ones(0), *map(_flat_mask, mask)])


def wrong_mask(given: str, expected: str) -> UserError:
    """What to say of a mask that does not fit."""
    return UserError(f"an action mask has {given}: expected {expected}, one for each choice of each finite set")


def _start(space: gymnasium.Space) -> Any:
    """What the environment calls the first choice."""
    return getattr(space, "start", 0)
