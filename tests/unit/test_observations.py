"""Observations: what is taken, what it becomes, and what is refused."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from aql.envs.observations import from_gymnasium
from aql.errors import UserError

NESTED = spaces.Dict(goal=spaces.Box(-1, 1, (2,)), place=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 9, (1,))]))
UNEQUAL = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, (3,)))
IMAGE = spaces.Box(0, 255, (2, 2, 3), np.uint8)
DARK = np.zeros((2, 2, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "observation", "words"),
    [
        (spaces.Discrete(5), -1, "-1 is not in Discrete"),
        (spaces.Discrete(5, start=2), 1, "1 is not in Discrete"),
        (spaces.Discrete(5), 2.5, "2.5 is not in Discrete"),
        (spaces.MultiDiscrete([2, 3]), np.array([3, 0]), "is not in MultiDiscrete"),
        (spaces.MultiBinary(2), np.array([0, 2]), "is not in MultiBinary"),
        (spaces.Box(0, 1, (2,)), [0.5, -7], r"-7 in entry 1, outside of its space's \[0, 1\]"),
        (spaces.Box(0, 1, (2, 2)), [[0, 0], [0, 5]], r"5 in entry \(1, 1\), outside"),
        (spaces.Box(0, 1, (2,)), [0.5, np.nan], "infinite or not a number"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float64), [1e39], "infinite or not a number as float32"),
        (
            spaces.Dict(x=spaces.Box(-np.inf, np.inf, (), np.float64), eye=IMAGE),
            {"x": 1e39, "eye": DARK},
            "in part 'x', .*",
        ),
        (spaces.Box(0, 1, (2,)), [0.5], r"shape \(1,\): expected \(2,\)"),
        (spaces.Box(0, 1, (2,)), {"x": 1}, "of object: expected an array of numbers"),
        (spaces.Box(0, 1, (2,)), "here", "expected an array of numbers"),
        (spaces.Box(0, 1, (2,)), [[1, 2], [3]], "ragged"),
        (IMAGE, np.full((2, 2, 3), 0.5), "float64: expected uint8"),
        (IMAGE, np.full((2, 2, 3), 300), "300 in entry"),
        (UNEQUAL, {"a": np.zeros(3), "b": np.zeros(2)}, r"in part 'a', an observation has shape \(3,\)"),
        (UNEQUAL, {"a": np.zeros(2)}, "is not in Dict"),
        (UNEQUAL, {"a": np.zeros(2), "c": np.zeros(3)}, "is not in Dict"),
        (NESTED, {"goal": np.zeros(2), "place": (3, [0])}, "in part 'place', in part 0, the observation 3 is not in"),
        (NESTED, {"goal": np.zeros(2), "place": (2,)}, "is not in Tuple"),
    ],
)
def test_what_is_outside_of_its_space_is_refused(space: Any, observation: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_gymnasium(space).one(observation)


def test_rounding_is_forgiven() -> None:
    read = from_gymnasium(spaces.Box(0, 1, (2,)))
    np.testing.assert_array_equal(read.one([0.0, 1.000001]), np.array([0, 1.000001], np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, int])
def test_one_and_many_are_told_apart_by_their_axes(dtype: Any) -> None:
    read = from_gymnasium(NESTED)
    one = {"goal": np.array([1, -1], dtype), "place": (2, np.array([7], dtype))}
    expected = np.array([1, -1, 0, 0, 1, 7], np.float32)
    array, single = read.batch(one)
    assert single
    np.testing.assert_array_equal(array, [expected])
    places = (np.array([2, 0]), np.array([[7], [9]], dtype))
    many = {"goal": np.array([[1, -1], [0, 0]], dtype), "place": places}
    array, single = read.batch(many)
    assert not single
    np.testing.assert_array_equal(array, [expected, [0, 0, 1, 0, 0, 9]])
    np.testing.assert_array_equal(read.batch(many | {"place": list(places)})[0], array)
    lone = from_gymnasium(spaces.Dict(x=spaces.Box(-1, 1, (1,))))
    assert lone.batch({"x": np.array([0.5])})[1]  # no batch of one, whatever its type
    assert not lone.batch({"x": np.array([[0.5]])})[1]


EXTRA = {"goal": np.zeros((2, 2)), "place": (np.zeros(2, int), np.zeros((2, 1))), "more": np.zeros(2)}


@pytest.mark.parametrize("observation", [{"goal": np.zeros((2, 2))}, {}, None, 3, EXTRA])
def test_no_batch_of_something_else(observation: Any) -> None:
    with pytest.raises(UserError, match="nor a batch of it"):
        from_gymnasium(NESTED).batch(observation)


def test_channels_go_last() -> None:
    read = from_gymnasium(spaces.Box(0, 255, (4, 5, 6), np.uint8))
    assert read.shape == (5, 6, 4)
    picture = np.arange(120, dtype=np.uint8).reshape(4, 5, 6)
    np.testing.assert_array_equal(read.one(picture)[1, 2], picture[:, 1, 2])
    assert read.batch(np.stack([picture, picture]))[0].shape == (2, 5, 6, 4)
    assert from_gymnasium(spaces.Box(0, 255, (5, 6, 3), np.uint8)).shape == (5, 6, 3)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({"a": np.zeros(2), "eye": DARK[..., 0]}, r"in part 'eye', an observation has shape \(2, 2\)"),
        ({"a": 3.0, "eye": DARK}, r"in part 'a', an observation has shape \(\)"),
        ({"a": np.zeros((3, 2)), "eye": np.stack([DARK] * 2)}, "in part 'a', an observation has shape"),
        ({"a": np.zeros((2, 2)), "eye": np.stack([DARK] * 3)}, "in part 'a', an observation has shape"),
        ({"a": np.zeros((0, 2)), "eye": np.zeros((0, 2, 2, 3), np.uint8)}, "in part 'a', an observation has shape"),
        ({"a": np.zeros(2)}, "nor a batch of it"),
    ],
)
def test_parts_of_a_batch_fit_together(observation: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_gymnasium(spaces.Dict(a=spaces.Box(-1, 1, (2,)), eye=IMAGE)).batch(observation)


@pytest.mark.parametrize("part", [spaces.Text(4), spaces.OneOf([spaces.Discrete(2), IMAGE]), spaces.Dict({})])
def test_parts_that_are_no_numbers_are_refused(part: Any) -> None:
    with pytest.raises(UserError, match="is not supported"):
        from_gymnasium(spaces.Dict(a=part, eye=IMAGE))


MIXED = spaces.Dict(
    body=spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float64)]),
    eye=spaces.Box(0, 255, (2, 4, 5), np.uint8),  # channels first
    head=spaces.Dict(eye=spaces.Box(0, 255, (3, 3, 1), np.uint8), tilt=spaces.Box(-np.inf, np.inf, ())),
)


def test_images_and_numbers_side_by_side() -> None:
    read = from_gymnasium(MIXED)
    assert read.describe() == "an image (4, 5, 2) and an image (3, 3, 1) and 6 numbers"
    assert from_gymnasium(spaces.Dict(eye=IMAGE)).describe() == "an image (2, 2, 3)"
    assert from_gymnasium(spaces.Tuple([IMAGE, spaces.Box(0, 1, ())])).describe() == "an image (2, 2, 3) and a number"
    eyes = np.arange(40, dtype=np.uint8).reshape(2, 4, 5), np.full((3, 3, 1), 255, np.uint8)
    seen = {"body": (1, np.array([0.1, -1])), "eye": eyes[0], "head": {"eye": eyes[1], "tilt": np.float32(1e-30)}}
    row = read.one(seen)
    assert row.shape == (40 + 9 + 4 * 6,)
    assert row.dtype == np.uint8
    assert read.parts is not None
    images, numbers = read.parts.unpack(jnp.asarray(row))
    np.testing.assert_array_equal(images[0], np.moveaxis(eyes[0], 0, -1))
    np.testing.assert_array_equal(images[1], eyes[1])
    np.testing.assert_array_equal(numbers, np.array([0, 1, 0, 0.1, -1, 1e-30], np.float32))
    batch, single = read.batch(seen)
    assert single
    np.testing.assert_array_equal(batch, [row])
    stacked: Any = create_empty_array(MIXED, 2)
    MIXED.seed(0)
    rows = [MIXED.sample(), MIXED.sample()]
    batch, single = read.batch(concatenate(MIXED, rows, stacked))
    assert not single
    np.testing.assert_array_equal(batch, [read.one(one) for one in rows])


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        (
            "eye",
            np.zeros((4, 5, 2), np.uint8),
            r"in part 'eye', an observation has shape \(4, 5, 2\): expected \(2, 4, 5",
        ),
        ("body", (1, np.array([0, 3.0])), r"in part 'body', in part 1, an observation has 3 in entry 1, outside"),
        ("head", {"eye": np.zeros((3, 3, 1), np.uint8)}, "in part 'head', the observation .* is not in"),
        (
            "head",
            {"eye": np.zeros((3, 3, 1), np.uint8), "tilt": np.nan},
            "in part 'head', in part 'tilt', .* not a number",
        ),
    ],
)
def test_mixed_observations_outside_of_their_space(part: str, value: Any, words: str) -> None:
    MIXED.seed(0)
    with pytest.raises(UserError, match=words):
        from_gymnasium(MIXED).one({**MIXED.sample(), part: value})
