"""Action spaces: literal numbers, and properties over random nested Gymnasium spaces."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from aql.actions import ActionSpace, Discrete, Interval
from aql.errors import UserError

HYBRID = ActionSpace((Discrete(3), Interval(-1, 3), Interval(0, 1, bins=5)))


def _boxes() -> Any:
    shapes = st.sampled_from([(), (1,), (3,), (2, 2)])
    dtypes = st.sampled_from([np.float32, np.float64])
    bounds = st.tuples(st.floats(-100, 100, width=32), st.floats(0.125, 100, width=32))
    return st.builds(lambda s, d, b: spaces.Box(b[0], b[0] + b[1], s, d), shapes, dtypes, bounds)


LEAVES = st.one_of(
    _boxes(),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-3, 3)),
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.just(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [-2, 3]]))),
    st.sampled_from([(3,), (2, 2)]).map(spaces.MultiBinary),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=5,
)


def _uniform(space: Any, seed: Any, shape: Any = ()) -> Any:
    """Actions drawn with numpy: a new space would have JAX compile `sample` for every example."""
    u = np.random.default_rng(seed).random((*shape, space.dimensions))
    return np.where(space.num_choices > 0, space.from_index(np.floor(u * space.num_choices)), 2 * u - 1)


@settings(max_examples=150, deadline=None)
@given(SPACES, st.sampled_from([None, 2, 5]), st.integers(0, 2**31))
def test_round_trip(gym_space: Any, bins: Any, seed: Any) -> None:
    space = ActionSpace.from_gymnasium(gym_space, bins)
    batch = _uniform(space, seed, (70,)).astype(np.float32)  # 10,500 actions in all
    for action in batch:
        theirs = space.to_env(action)
        assert gym_space.contains(theirs)
        ours = space.from_env(theirs)
        assert np.abs(ours - action).max() < 2e-3
        assert ours.dtype == np.float32
    np.testing.assert_allclose(space.from_env(space.to_env(batch)), batch, atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(SPACES, st.integers(0, 2**31))
def test_what_the_environment_samples_comes_back(gym_space: Any, seed: Any) -> None:
    gym_space.seed(seed)
    space = ActionSpace.from_gymnasium(gym_space)
    theirs = gym_space.sample()
    ours = space.from_env(theirs)
    assert ours.shape == (space.dimensions,)
    assert np.all(np.abs(ours[space.num_choices == 0]) <= 1 + 1e-5)
    flat: Any = spaces.utils.flatten(gym_space, theirs)
    back: Any = spaces.utils.flatten(gym_space, space.to_env(ours))
    np.testing.assert_allclose(back, flat, rtol=1e-4, atol=1e-4)


def test_ends_are_reached_exactly() -> None:
    box = spaces.Box(np.array([0.1, -7], np.float32), np.array([0.3, 1e-3], np.float32))
    space = ActionSpace.from_gymnasium(box)
    np.testing.assert_array_equal(space.to_env(np.array([[-1, -1], [1, 1]], np.float32)), [box.low, box.high])


def test_numbers_of_a_hybrid_space() -> None:
    assert HYBRID.dimensions == 3
    np.testing.assert_array_equal(HYBRID.num_choices, [3, 0, 5])
    assert not HYBRID.is_discrete
    assert HYBRID.size == math.inf
    action = np.array([2, 0.5, -0.5], np.float32)
    np.testing.assert_allclose(HYBRID.to_env(action), [2, 2, 0.25])
    np.testing.assert_allclose(HYBRID.from_env(np.array([2, 2, 0.25])), action)
    np.testing.assert_array_equal(HYBRID.to_index(jnp.array([1.2, 0.0, 0.6])), [1, 0, 3])


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([24], "24"),
        ([999_999], "999,999"),
        ([10] * 6, "1e+06"),
        ([5] * 10, "9.8e+06"),  # 9,765,625
        ([9_949_999], "9.9e+06"),
        ([9_960_000], "1e+07"),
        ([5] * 21, "4.8e+14"),
        ([10] * 400, "1e+400"),
    ],
)
def test_sizes_in_words(choices: Any, words: str) -> None:
    assert ActionSpace(tuple(Discrete(n) for n in choices)).describe_size() == words


def test_encode_in_numbers() -> None:
    action = jnp.array([[2.0, 0.5, -0.5], [0.0, -1.0, 1.0]])
    expected: Any = [[0, 0, 1, 0.5, -0.5], [1, 0, 0, -1, 1]]
    np.testing.assert_allclose(HYBRID.encode(action), expected)
    np.testing.assert_array_equal(HYBRID.feature_owner, [0, 0, 0, 1, 2])
    one_hot = ActionSpace(HYBRID.subactions, interval_encoding="one-hot")
    expected = [[0, 0, 1, 0.5, 0, 1, 0, 0, 0], [1, 0, 0, -1, 0, 0, 0, 0, 1]]
    np.testing.assert_allclose(one_hot.encode(action), expected)
    np.testing.assert_array_equal(one_hot.feature_owner, [0, 0, 0, 1, 2, 2, 2, 2, 2])
    np.testing.assert_allclose(jax.jit(one_hot.encode)(action), expected)


def test_encode_leaves_values_alone() -> None:
    action = jnp.array([[0.25, -1.0]])
    assert ActionSpace((Interval(0, 1), Interval(0, 1, bins=3))).encode(action) is action


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 2**31))
def test_encode_has_one_one_per_choice(sizes: Any, seed: Any) -> None:
    space = ActionSpace(tuple(Discrete(n) for n in sizes))
    features = np.asarray(space.encode(_uniform(space, seed, (6,)).astype(np.float32)))
    assert features.shape == (6, sum(sizes))
    assert set(np.unique(features)) <= {0.0, 1.0}
    for d in range(len(sizes)):
        np.testing.assert_array_equal(features[:, space.feature_owner == d].sum(axis=1), 1)


@pytest.mark.parametrize(
    "space",
    [
        ActionSpace((Discrete(7), Interval(-3, 5, bins=5), Discrete(2))),
        ActionSpace((Discrete(300), Discrete(3))),
        ActionSpace((Discrete(3), Interval(0, 1), Interval(0, 1, bins=4))),
    ],
    ids=["small", "large", "hybrid"],
)
def test_samples_are_uniform(space: Any) -> None:
    n = 30_000
    action = np.asarray(space.sample(jax.random.key(0), (n // 10, 10))).reshape(n, space.dimensions)
    for d, choices in enumerate(space.num_choices):
        if choices:
            index = np.asarray(space.to_index(action))[:, d]
            np.testing.assert_allclose(
                space.from_index(np.asarray(space.to_index(action)))[:, d], action[:, d], atol=1e-6
            )
            count = np.bincount(index, minlength=choices)
            assert len(count) == choices
        else:
            assert np.abs(action[:, d]).max() <= 1
            count = np.histogram(action[:, d], bins=20, range=(-1, 1))[0]
        assert stats.chisquare(count).pvalue > 1e-3
    assert np.abs(np.corrcoef(action.T) - np.eye(space.dimensions)).max() < 0.03
    assert np.any(
        np.asarray(space.sample(jax.random.key(1), (10,))) != np.asarray(space.sample(jax.random.key(0), (10,)))
    )


def test_enumerate_in_numbers() -> None:
    space = ActionSpace((Discrete(2), Interval(0, 10, bins=3)))
    expected = [[0, -1], [0, 0], [0, 1], [1, -1], [1, 0], [1, 1]]
    np.testing.assert_array_equal(space.enumerate(), expected)
    assert space.size == 6
    with pytest.raises(UserError, match="cannot be enumerated"):
        HYBRID.enumerate()


def test_index_round_trip() -> None:
    space = ActionSpace((Discrete(4), Interval(-2, 2, bins=7), Interval(0, 1, bins=2)))
    index = np.array(list(itertools.product(range(4), range(7), range(2))))
    np.testing.assert_array_equal(space.to_index(space.from_index(jnp.asarray(index))), index)
    # What lies outside goes to the nearest end.
    np.testing.assert_array_equal(
        space.to_index(jnp.array([[-2.0, -3.0, -9.0], [9.0, 9.0, 9.0]])), [[0, 0, 0], [3, 6, 1]]
    )


def test_bins() -> None:
    humanoid = ActionSpace(tuple(Interval(-1, 1) for _ in range(21))).with_bins(5)
    assert humanoid.size == 5**21
    assert humanoid.is_discrete
    assert humanoid.with_bins(None).size == math.inf
    assert HYBRID.with_bins(3).subactions == (Discrete(3), Interval(-1, 3, 3), Interval(0, 1, 3))
    assert ActionSpace.from_gymnasium(spaces.Box(-1, 1, (2,)), bins=4).size == 16


def test_integers_are_all_choices_where_they_are_few() -> None:
    few = ActionSpace.from_gymnasium(spaces.Box(np.array([0, -3]), np.array([1, 6]), dtype=np.int64), bins=5)
    assert few.num_choices.tolist() == [2, 10]
    assert [few.to_env(action).tolist() for action in few.enumerate()[[0, 1, 10, 19]]] == [
        [0, -3],
        [0, -2],
        [1, -3],
        [1, 6],
    ]
    many = ActionSpace.from_gymnasium(spaces.Box(0, 1000, (1,), np.int64), bins=5)
    assert [int(many.to_env(action)[0]) for action in many.enumerate()] == [0, 250, 500, 750, 1000]


def test_an_interval_of_one_value_has_it() -> None:
    space = ActionSpace.from_gymnasium(spaces.Box(np.array([2, 0], np.float32), np.array([2, 1], np.float32)), bins=3)
    np.testing.assert_array_equal(space.to_env(space.enumerate()[[0, 8]]), [[2, 0], [2, 1]])
    np.testing.assert_array_equal(space.from_env(np.array([2, 0.5], np.float32)), [0, 0])


def test_spaces_compare_by_their_subactions() -> None:
    assert ActionSpace.from_gymnasium(spaces.Box(-1, 1, (2,))) == ActionSpace((Interval(-1, 1), Interval(-1, 1)))


def test_dm_env_specs() -> None:
    specs = pytest.importorskip("dm_env.specs")
    bounded = specs.BoundedArray((2,), np.float64, minimum=[-1, 0], maximum=2.0)
    space = ActionSpace.from_dm_env(bounded)
    assert space.subactions == (Interval(-1, 2), Interval(0, 2))
    bounded.validate(space.to_env(np.array([1.0, -1.0], np.float32)))
    discrete = specs.DiscreteArray(4)
    assert ActionSpace.from_dm_env(discrete).subactions == (Discrete(4),)
    nested = ActionSpace.from_dm_env({"move": [bounded, discrete], "jump": specs.DiscreteArray(2)})
    assert nested.subactions == (Discrete(2), Interval(-1, 2), Interval(0, 2), Discrete(4))
    action = nested.to_env(np.array([1, 1, -1, 3], np.float32))
    assert action["jump"] == 1
    np.testing.assert_array_equal(action["move"][0], [2, 0])
    assert action["move"][1] == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ActionSpace.from_gymnasium(spaces.Box(-np.inf, np.inf, (2,))), "unbounded"),
        (lambda: ActionSpace.from_gymnasium(spaces.Box(0, np.inf, (2,))), "unbounded"),
        (lambda: ActionSpace.from_gymnasium(spaces.Text(3)), "not supported"),
        (lambda: ActionSpace.from_gymnasium(spaces.Tuple([])), "nothing to choose"),
        (lambda: ActionSpace(()), "nothing to choose"),
        (lambda: Interval(1, 0), "empty"),
        (lambda: ActionSpace.from_dm_env(("a", "list")), "'a' is not supported: expected BoundedArray"),
        (lambda: Interval(0, 1, bins=1), "at least 2"),
        (lambda: Discrete(0), "at least 1"),
    ],
)
def test_errors(build: Any, message: Any) -> None:
    with pytest.raises(UserError, match=message):
        build()


DECODED = {
    "values": ActionSpace((Interval(0, 1), Interval(0, 1, bins=3))),
    "one-hot": ActionSpace((Interval(0, 1, bins=5), Interval(-1, 3, bins=2)), interval_encoding="one-hot"),
    "choices": ActionSpace((Discrete(3), Discrete(1), Discrete(4))),
    "hybrid": ActionSpace((*HYBRID.subactions, Discrete(2)), interval_encoding="one-hot"),
}


def test_decode_in_numbers() -> None:
    features = jnp.array([[0, 0, 1, 0.5, -0.5], [1, 0, 0, -1, 1]])
    np.testing.assert_allclose(HYBRID.decode(features), [[2.0, 0.5, -0.5], [0.0, -1.0, 1.0]])
    one_hot = ActionSpace(HYBRID.subactions, interval_encoding="one-hot")
    features = jnp.array([0, 1, 0, 0.5, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(one_hot.decode(features), [1, 0.5, 0.5])


@pytest.mark.parametrize("name", DECODED)
def test_decode_inverts_encode(name: str) -> None:
    space = DECODED[name]
    action = _uniform(space, 0, (3, 20)).astype(np.float32)
    np.testing.assert_allclose(space.decode(space.encode(jnp.asarray(action))), action, atol=1e-6)


@pytest.mark.parametrize("name", DECODED)
def test_set_feature_builds_encode_one_sub_action_at_a_time(name: str) -> None:
    space = DECODED[name]
    action = jnp.asarray(_uniform(space, 0, (20,)).astype(np.float32))
    features = jnp.full((len(space.feature_owner), 20), 9.0)
    for d in range(space.dimensions):
        before = features
        features = space.set_feature(features, jnp.array(d), action[:, d])
        np.testing.assert_array_equal(features[space.feature_owner != d], before[space.feature_owner != d])
    np.testing.assert_allclose(features.T, space.encode(action), atol=1e-6)


def test_set_feature_in_numbers() -> None:
    # [F, n]: features (three choices, value, value) of two actions; sub-action 0 becomes choice 1 and choice 2.
    features = HYBRID.set_feature(jnp.zeros((5, 2)), jnp.array(0), jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(features, [[0, 0], [1, 0], [0, 1], [0, 0], [0, 0]])


def test_uniform_log_prob_in_numbers() -> None:
    assert ActionSpace((Discrete(4), Discrete(2))).uniform_log_prob() == pytest.approx(-np.log(8))
    # A continuous sub-action is scaled to [-1, 1], whatever its bounds: density 1/2.
    space = ActionSpace((Discrete(3), Interval(-7, 9), Interval(0, 1, bins=5)))
    np.testing.assert_allclose(space.uniform_log_prob((2,)), [-np.log(3 * 2 * 5)] * 2, rtol=1e-6)
    allowed = space.allowed(jnp.array([[True, True, True], [False, True, False]]))
    np.testing.assert_allclose(space.uniform_log_prob((2,), allowed), [-np.log(3 * 2 * 5), -np.log(2 * 5)], rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "looks_up"),
    [
        (ActionSpace((Discrete(3528),)), True),
        (ActionSpace((Discrete(256),) * 6), True),
        (ActionSpace((Discrete(2),) * 300), False),
        (ActionSpace((Interval(-1, 1),) * 300), False),
        (ActionSpace((Discrete(11),)), False),
    ],
)
def test_rows_are_looked_up_where_sub_actions_have_many_choices(space: ActionSpace, looks_up: bool) -> None:
    kernel, action = jnp.zeros((len(space.feature_owner), 4)), jnp.zeros((5, space.dimensions))
    assert ("dot_general[" in str(jax.make_jaxpr(space.project)(action, kernel))) != looks_up


@pytest.mark.parametrize(
    "space",
    [
        ActionSpace((Discrete(300),)),
        ActionSpace((Interval(-1, 1), Discrete(200), Interval(0, 3, bins=5), Discrete(150))),
        ActionSpace((Discrete(400), Interval(0, 1, bins=9)), interval_encoding="one-hot"),
        ActionSpace((Discrete(3), Interval(-1, 1))),
    ],
)
def test_a_projection_is_a_product_with_the_features(space: ActionSpace) -> None:
    """Also where thousands of choices are looked up instead, forward and backward."""
    kernel = jax.random.normal(jax.random.key(0), (len(space.feature_owner), 4))
    action = space.sample(jax.random.key(1), (5, 7))
    np.testing.assert_allclose(space.project(action, kernel), space.encode(action) @ kernel, rtol=1e-5, atol=1e-5)
    got, expected = (
        jax.grad(lambda kernel, by=by: jnp.sum(jnp.sin(by(kernel))))(kernel)
        for by in (lambda kernel: space.project(action, kernel), lambda kernel: space.encode(action) @ kernel)
    )
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
