"""Critics: a network small enough to compute by hand, what the two towers promise, and where targets end."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from aql import agents
from aql.actions import ActionSpace, Discrete, Interval
from aql.agents.base import EnvSpec
from aql.agents.critic import Evaluated, highest_return, lambda_targets
from aql.config import Config
from aql.experience import Unroll
from aql.networks import apply
from aql.networks.critics import Critic, Head, Tower, Value, standardise

KEY = jax.random.key(0)


def _critic(layers: tuple[int, ...] = (16, 8), layer_norm: bool = False) -> tuple[Critic, Any]:
    critic = Critic(ActionSpace((Interval(-1, 1),) * 3), layers, layer_norm)
    return critic, jax.jit(critic.init)(KEY, jnp.zeros((1, 5)), jnp.zeros((1, 3)))


def test_by_hand() -> None:
    critic = Critic(ActionSpace((Interval(-1, 1),)), (2,))
    params = critic.init(KEY, jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    by_hand = {
        "state_tower": {"Dense_0": {"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.array([0.5, 0.0])}},
        "action_tower": {"kernel": jnp.array([[3.0, 1.0]])},
        "output": {"kernel": jnp.array([[2.0], [10.0]]), "bias": jnp.array([0.25])},
    }
    assert jax.tree.map(jnp.shape, params["params"]) == jax.tree.map(jnp.shape, by_hand)
    # s = 1, a = 1:    f = (1.5, -2) + (3, 1) = (4.5, -1)      -> 2 * 4.5 + 0        + 0.25 =  9.25
    # s = -1, a = 0.5: f = (-0.5, 2) + (1.5, 0.5) = (1, 2.5)   -> 2 * 1   + 10 * 2.5 + 0.25 = 27.25
    q = apply(critic, {"params": by_hand}, jnp.array([[1.0], [-1.0]]), jnp.array([[1.0], [0.5]]))
    np.testing.assert_allclose(q, [9.25, 27.25])


def test_predictions_by_hand() -> None:
    critic = Critic(ActionSpace((Interval(-1, 1),)), (2,), num_predictions=3)
    params = critic.init(KEY, jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    by_hand = {
        "state_tower": {"Dense_0": {"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.array([0.5, 0.0])}},
        "action_tower": {"kernel": jnp.array([[3.0, 1.0]])},
        "output": {
            "kernel": jnp.array([[2.0, 1.0, 0.0, -1.0], [10.0, 0.0, 2.0, 1.0]]),
            "bias": jnp.array([0.25, 0.0, 0.0, 100.0]),
        },
    }
    assert jax.tree.map(jnp.shape, params["params"]) == jax.tree.map(jnp.shape, by_hand)
    # The units of s = -1, a = 0.5 are (1, 2.5), see above, and Q is that of a critic that predicts nothing.
    evaluated = Evaluated(critic, ({"params": by_hand},) * 2, (jnp.array([[-0.5, 2.0]]),) * 2)
    np.testing.assert_allclose(evaluated.outputs(jnp.array([[0.5]])), [[[27.25, 1, 5, 101.5]]] * 2)
    np.testing.assert_allclose(evaluated.values(jnp.array([[0.5]])), [[27.25]] * 2)


@pytest.mark.parametrize("shape", [(8,), (4, 8), (3, 1, 128), (3, 100)])
def test_standardise_is_flax_layer_norm(shape: tuple[int, ...]) -> None:
    x, weights = 5 * jax.random.normal(KEY, shape) + 2, jax.random.normal(jax.random.key(1), shape)

    def oracle(x: jax.Array) -> jax.Array:
        return apply(nn.LayerNorm(use_bias=False, use_scale=False), {}, x)

    np.testing.assert_allclose(standardise(x), oracle(x), rtol=1e-4, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(weights * standardise(x))))(x)
    np.testing.assert_allclose(gradient, jax.grad(lambda x: jnp.sum(weights * oracle(x)))(x), rtol=1e-3, atol=1e-5)
    # What is the same everywhere has no deviation to divide by; rounding may make it one below 0.
    same = jnp.full(shape, 7.0)
    np.testing.assert_allclose(standardise(same), 0, atol=1e-2)
    assert np.isfinite(jax.grad(lambda x: jnp.sum(weights * standardise(x)))(same)).all()


def test_optimism_by_hand() -> None:
    critic = Critic(ActionSpace((Interval(-1, 1),)), (1,))

    def params(slope: float) -> Any:
        return {
            "params": {
                "state_tower": {"Dense_0": {"kernel": jnp.array([[1.0]]), "bias": jnp.array([0.0])}},
                "action_tower": {"kernel": jnp.array([[slope]])},
                "output": {"kernel": jnp.array([[1.0]]), "bias": jnp.array([0.0])},
            }
        }

    # Q of the two in s = 5: 5 + a and 5 - 3 a, so their mean is 5 - a and each is 2 |a| away from it.
    state = jnp.array([[5.0]])
    evaluated = Evaluated(critic, (params(1.0), params(-3.0)), (state, state))
    candidates = jnp.array([[[-1.0], [0.0], [0.5]]])
    np.testing.assert_allclose(evaluated.score(candidates), [[6, 5, 4.5]])
    np.testing.assert_allclose(evaluated.score(candidates, optimism=1.5), [[9, 5, 6]])
    alone = Evaluated(critic, (params(1.0),), (state,))
    np.testing.assert_allclose(alone.score(candidates, optimism=1.5), [[4, 5, 5.5]])


def test_no_target_exceeds_what_rewards_add_up_to() -> None:
    # One transition for each of three states, reward 2, a critic that promises 50, 198 and a million afterwards.
    v_t = jnp.array([[50.0], [198.0], [1e6]])
    pairs = jnp.zeros((3, 2))
    unrolls = Unroll(None, None, pairs + 2, pairs + 1, pairs.astype(bool), None, {})

    def targets(**settings: Any) -> jax.Array:
        return lambda_targets(Config(gamma=0.99, **settings), unrolls, v_t, q_t=v_t)[:, 0]

    np.testing.assert_allclose(targets(), [51.5, 198.02, 990_002], rtol=1e-6)
    # At most 1 a step, two steps a decision: 2 / (1 - 0.99) = 200.
    np.testing.assert_allclose(targets(most_reward=1.0, action_repeat=2), [51.5, 198.02, 200], rtol=1e-5)
    np.testing.assert_allclose(targets(most_reward=1.5, action_repeat=1), [51.5, 150, 150], rtol=1e-5)
    assert highest_return(Config(most_reward=1.0, gamma=1.0)) == math.inf  # nothing to add up to


def test_a_bias_counts_its_unit() -> None:
    params = {"params": {"kernel": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "bias": jnp.array([0.5, -1.0])}}
    units = jnp.array([[1.0, 10.0]])
    np.testing.assert_allclose(apply(Head(2, 2, bias_unit=30.0), params, units), [[31 + 15, 42 - 30]])
    np.testing.assert_allclose(apply(Head(2, 2), params, units, 1), [[31.5]])


@pytest.mark.parametrize(("level", "share"), [(-50.0, 0), (10.0, 0), (11.0, 0.2), (12.5, 0.5), (15.0, 1), (80.0, 1)])
def test_squares_count_once_something_is_earned(level: float, share: float) -> None:
    critic = Critic(ActionSpace((Discrete(2), Interval(-1, 1))), (1,), bias_unit=10.0, curvature=10.0)
    params = {
        "params": {
            "state_tower": {"Dense_0": {"kernel": jnp.array([[1.0]]), "bias": jnp.array([0.0])}},
            "action_tower": {"kernel": jnp.array([[2.0], [3.0], [4.0]]), "squares": jnp.array([[-5.0]])},
            "output": {"kernel": jnp.array([[1.0]]), "bias": jnp.array([level / 10])},
        }
    }
    fresh = critic.init(KEY, jnp.zeros((1, 1)), jnp.zeros((1, 2)))
    assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, params)
    assert not fresh["params"]["action_tower"]["squares"].any()

    def q(params: Any) -> jax.Array:  # the second choice, and 0.5: 20 + 3 + 4 * 0.5 - 5 * 0.25
        return apply(critic, params, jnp.array([[20.0]]), jnp.array([[1.0, 0.5]]))

    np.testing.assert_allclose(q(params), [25 - 1.25 * share + level], rtol=1e-6)
    # The level decides whether squares count, not the other way round.
    gradient = jax.grad(lambda params: q(params)[0])(params)["params"]
    np.testing.assert_allclose(gradient["output"]["bias"], [10])
    np.testing.assert_allclose(gradient["action_tower"]["squares"], [[0.25 * share]], rtol=1e-6)


def test_without_small_values_squares_count_at_once() -> None:
    critic = Critic(ActionSpace((Interval(-1, 1),)), (1,), curvature=0.0)
    params = critic.init(KEY, jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    params["params"]["action_tower"] = {"kernel": jnp.zeros((1, 1)), "squares": jnp.array([[-4.0]])}
    params["params"]["output"]["kernel"] = jnp.ones((1, 1))
    # Q is the best between the bounds, which no weighted sum of values and ReLUs of positive weight has.
    q = apply(critic, params, 10 * jnp.ones((3, 1)), jnp.array([[-1.0], [0.0], [1.0]]))
    np.testing.assert_allclose(q[1] - q[::2], 4, rtol=1e-6)


def test_the_scale_says_from_where_on_squares_count() -> None:
    spec = EnvSpec((2,), ActionSpace((Interval(-1, 1),)))
    plain = {"most_reward": 1.0, "gamma": 0.99, "small_values": 0.1}
    for settings, expected in (
        ({}, None),
        ({"curvature": True}, 0.0),
        (plain | {"curvature": True}, 10.0),
        ({"curvature": True, "few_subactions": 1}, None),  # there is one
    ):
        agent: Any = agents.make(Config(**settings), spec)
        assert agent._critic.curvature == (None if expected is None else pytest.approx(expected, rel=1e-6))


def test_what_follows_a_bad_action_counts_for_less() -> None:
    # One unroll of two transitions with rewards 1 and 2; the action between them was worth 3 less than a*.
    pairs = jnp.zeros((1, 3))
    unrolls = Unroll(None, None, jnp.array([[0.0, 1.0, 2.0]]), pairs + 1, pairs.astype(bool), None, {})
    v_t, q_t = jnp.array([[10.0, 20.0]]), jnp.array([[7.0, 20.0]])

    def targets(**settings: Any) -> jax.Array:
        return lambda_targets(Config(gamma=0.5, lambda_=1.0, **settings), unrolls, v_t, q_t)[0]

    # G_1 = 2 + 0.5 * 20 = 12; G_0 = 1 + 0.5 * ((1 - c) * 10 + c * 12) = 6 + c
    np.testing.assert_allclose(targets(), [7, 12], rtol=1e-6)
    np.testing.assert_allclose(targets(trace_tolerance=3.0), [6 + np.exp(-1), 12], rtol=1e-6)
    np.testing.assert_allclose(targets(trace_tolerance=0.01), [6, 12], rtol=1e-6)


def test_the_hidden_layers_have_relu_and_the_sum_is_linear_before_it() -> None:
    tower = Tower((1, 1))
    params = {
        "params": {
            "Dense_0": {"kernel": jnp.array([[1.0]]), "bias": jnp.array([0.0])},
            "Dense_1": {"kernel": jnp.array([[-3.0]]), "bias": jnp.array([1.0])},
        }
    }
    # relu between the layers, none after the last: -3 * relu(2) + 1 = -5, -3 * relu(-2) + 1 = 1.
    np.testing.assert_allclose(apply(tower, params, jnp.array([[2.0], [-2.0]])), [[-5], [1]])


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("leading", [(4,), (2, 3, 5)])
def test_value_of_state_is_call(layer_norm: bool, leading: tuple[int, ...]) -> None:
    critic, params = _critic(layer_norm=layer_norm)
    embedding = jax.random.normal(KEY, (*leading, 5))
    features = jax.random.normal(jax.random.key(1), (*leading, 3))
    state = jax.jit(lambda p, e: apply(critic, p, e, method="state"))(params, embedding)
    q = jax.jit(lambda p, e, f: apply(critic, p, e, f))(params, embedding, features)
    value = jax.jit(lambda p, s, f: apply(critic, p, s, f, method="value"))(params, state, features)
    assert state.shape == (*leading, 8)
    assert q.shape == value.shape == leading
    np.testing.assert_allclose(value, q, rtol=1e-5, atol=1e-6)


def test_one_state_half_serves_all_candidates() -> None:
    critic, params = _critic(layer_norm=True)
    embedding = jax.random.normal(KEY, (4, 5))
    candidates = jax.random.normal(jax.random.key(1), (4, 7, 3))
    state = apply(critic, params, embedding, method="state")
    once = apply(critic, params, state[:, None], candidates, method="value")
    each = apply(critic, params, jnp.repeat(embedding[:, None], 7, axis=1), candidates)
    np.testing.assert_allclose(once, each, rtol=1e-5, atol=1e-6)
    assert np.std(once, axis=1).min() > 0  # Q does depend on the action


def test_layer_norm_makes_the_state_half_blind_to_scale() -> None:
    embedding = jax.random.normal(KEY, (4, 5))
    plain, params = _critic(layer_norm=False)
    normed, normed_params = _critic(layer_norm=True)
    # It has no parameters of its own.
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, normed_params)
    state = apply(normed, params, embedding, method="state")
    np.testing.assert_allclose(np.mean(state, axis=-1), 0, atol=1e-5)
    np.testing.assert_allclose(np.std(state, axis=-1), 1, atol=1e-3)
    np.testing.assert_allclose(apply(normed, params, 100 * embedding, method="state"), state, atol=1e-3)
    unbounded = apply(plain, params, 100 * embedding, method="state")
    assert np.abs(unbounded).max() > 10


def test_the_action_tower_has_one_linear_layer_without_bias() -> None:
    _, params = _critic()
    assert jax.tree.map(jnp.shape, params["params"]["action_tower"]) == {"kernel": (3, 8)}


def test_value_by_hand() -> None:
    value = Value((2,))
    params = value.init(KEY, jnp.zeros((1, 1)))
    by_hand = {
        "Tower_0": {"Dense_0": {"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.array([0.5, 0.0])}},
        "Dense_0": {"kernel": jnp.array([[2.0], [10.0]]), "bias": jnp.array([0.25])},
    }
    assert jax.tree.map(jnp.shape, params["params"]) == jax.tree.map(jnp.shape, by_hand)
    # s = 1: relu(1.5, -2) -> 2 * 1.5 + 0.25; s = -1: relu(-0.5, 2) -> 10 * 2 + 0.25.
    np.testing.assert_allclose(apply(value, {"params": by_hand}, jnp.array([[[1.0], [-1.0]]])), [[3.25, 20.25]])


def test_values_with_layer_norm_tell_states_apart() -> None:
    value = Value((16, 8), layer_norm=True)
    embedding = jax.random.normal(KEY, (6, 5))
    params = jax.jit(value.init)(KEY, embedding)
    assert len(np.unique(np.asarray(apply(value, params, embedding)).round(4))) == 6
