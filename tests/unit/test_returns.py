"""Peng's Q(lambda) and V-trace: literal numbers, and rlax as oracle."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql.returns import greedy_trace, peng_q_lambda, vtrace

with warnings.catch_warnings():
    # rlax imports tensorflow_probability, which still uses names that jax has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import rlax


@pytest.fixture(params=[lambda f: f, jax.jit], ids=["plain", "jit"])
def q_lambda(request: Any) -> Any:
    return request.param(peng_q_lambda)


def _array(*values: float) -> Any:
    return jnp.array(values, jnp.float32)


def test_in_numbers(q_lambda: Any) -> None:
    # G_2 = 3 + 0.5 * 40                                   = 23
    # G_1 = 2 + 0.5 * (0.75 * 20 + 0.25 * 23)              = 12.375
    # G_0 = 1 + 0.5 * (0.75 * 10 + 0.25 * 12.375)          = 6.296875
    targets = q_lambda(_array(1, 2, 3), _array(0.5, 0.5, 0.5), _array(10, 20, 40), _array(0.25, 0.25, 0.25))
    np.testing.assert_allclose(targets, [6.296875, 12.375, 23], rtol=1e-6)


def test_lambda_0_is_one_step(q_lambda: Any) -> None:
    targets = q_lambda(_array(1, 2, 3), _array(0.5, 0.5, 0.5), _array(10, 20, 40), _array(0, 0, 0))
    np.testing.assert_allclose(targets, [1 + 5, 2 + 10, 3 + 20], rtol=1e-6)


def test_lambda_1_is_the_return_of_the_behaviour(q_lambda: Any) -> None:
    # 1 + 2/2 + 3/4 + 40/8 = 7.75
    targets = q_lambda(_array(1, 2, 3), _array(0.5, 0.5, 0.5), _array(-1, -1, 40), _array(1, 1, 1))
    np.testing.assert_allclose(targets, [7.75, 13.5, 23], rtol=1e-6)


def test_termination_ends_everything(q_lambda: Any) -> None:
    # Nothing after the second reward counts, neither the value there nor later rewards.
    targets = q_lambda(_array(1, 2, 1000), _array(0.5, 0, 0.5), _array(10, 777, 888), _array(0.5, 0.5, 0.5))
    np.testing.assert_allclose(targets, [1 + 0.5 * (0.5 * 10 + 0.5 * 2), 2, 1000 + 444], rtol=1e-6)


def test_a_time_limit_bootstraps_and_cuts_lambda(q_lambda: Any) -> None:
    # lambda_2 = 0: the target of the step that was cut is r + gamma v; rewards of the next episode never enter.
    targets = q_lambda(_array(1, 2, 1000, 1000), _array(*[0.5] * 4), _array(10, 20, 5, 5), _array(0.5, 0, 0.5, 0.5))
    np.testing.assert_allclose(targets[:2], [1 + 0.5 * (0.5 * 10 + 0.5 * 12), 2 + 0.5 * 20], rtol=1e-6)


def test_a_trace_goes_on_beyond_good_actions_only() -> None:
    # As good as a*, better than what the search found, worth 2 and 4 less where 2 is tolerated, and far worse.
    trace = greedy_trace(_array(10, 11, 8, 6, -1e30), _array(10, 10, 10, 10, 10), 2.0)
    np.testing.assert_allclose(trace, [1, 1, np.exp(-1), np.exp(-2), 0], rtol=1e-6)


def test_returns_with_traces_in_numbers(q_lambda: Any) -> None:
    # c_1 = exp(-ln 2) = 0.5, c_2 = 1: the action at time 1 was worth 2 ln 2 less than a*, that at time 2 as much.
    trace = greedy_trace(_array(10 - 2 * np.log(2), 20, 40), _array(10, 20, 40), 2.0)
    # G_2 = 3 + 0.5 * 40                           = 23
    # G_1 = 2 + 0.5 * 23                           = 13.5
    # G_0 = 1 + 0.5 * (0.5 * 10 + 0.5 * 13.5)      = 6.875
    targets = q_lambda(_array(1, 2, 3), _array(0.5, 0.5, 0.5), _array(10, 20, 40), trace)
    np.testing.assert_allclose(targets, [6.875, 13.5, 23], rtol=1e-6)


def test_the_last_lambda_has_no_effect(q_lambda: Any) -> None:
    arguments = _array(1, 2), _array(0.9, 0.9), _array(3, 4)
    np.testing.assert_allclose(q_lambda(*arguments, _array(0.5, 0)), q_lambda(*arguments, _array(0.5, 1)), rtol=1e-6)


def _random(rng: np.random.Generator, *shape: int) -> list[Any]:
    reward, value = rng.normal(size=(2, *shape))
    discount = 0.99 * (rng.random(shape) > 0.2)
    lambda_ = 0.8 * (rng.random(shape) > 0.2)
    return [jnp.asarray(x, jnp.float32) for x in (reward, discount, value, lambda_)]


@pytest.mark.parametrize("length", [1, 2, 30])
def test_against_rlax(q_lambda: Any, length: int) -> None:
    rng = np.random.default_rng(length)
    for _ in range(5):
        r_t, discount_t, v_t, lambda_t = _random(rng, length)
        np.testing.assert_allclose(
            q_lambda(r_t, discount_t, v_t, lambda_t),
            rlax.lambda_returns(r_t, discount_t, v_t, lambda_t),
            rtol=1e-5,
            atol=1e-5,
        )


def test_vmapped_rows_do_not_mix() -> None:
    rows = _random(np.random.default_rng(0), 4, 12)
    batched = jax.jit(jax.vmap(peng_q_lambda))(*rows)
    assert batched.shape == (4, 12)
    for i in range(4):
        np.testing.assert_allclose(batched[i], rlax.lambda_returns(*(row[i] for row in rows)), rtol=1e-5, atol=1e-5)


def test_no_gradient_flows_into_targets() -> None:
    r_t, discount_t, v_t, lambda_t = _random(np.random.default_rng(0), 5)
    gradient = jax.grad(lambda v: peng_q_lambda(r_t, discount_t, v, lambda_t).sum())(v_t)
    np.testing.assert_array_equal(gradient, 0)


def test_a_batch_without_vmap_is_refused() -> None:
    with pytest.raises(AssertionError):
        peng_q_lambda(*_random(np.random.default_rng(0), 2, 3))


# V-trace.


@pytest.fixture(params=[lambda f, **_: f, jax.jit], ids=["plain", "jit"])
def v_trace(request: Any) -> Any:
    return request.param(vtrace, static_argnames=("clip_rho", "clip_c"))


HALF = _array(0.5, 0.5, 0.5)
ONE = _array(1, 1, 1)
V_TM1, V_T, R_T, RHO = _array(1, 2, 3), _array(2, 3, 4), _array(1, 2, 3), _array(2, 0.5, 1)


def test_v_trace_in_numbers(v_trace: Any) -> None:
    # Clipped ratios 1, 1/2, 1. TD errors 1 (1 + 1 - 1) = 1, 1/2 (2 + 1.5 - 2) = 0.75, 1 (3 + 2 - 3) = 2.
    # G_2 - v_2 = 2, G_1 - v_1 = 0.75 + 0.5 * 0.5 * 2 = 1.25, G_0 - v_0 = 1 + 0.5 * 1 * 1.25 = 1.625.
    target, advantage = v_trace(V_TM1, V_T, R_T, HALF, RHO, ONE)
    np.testing.assert_allclose(target, [2.625, 3.25, 5], rtol=1e-6)
    np.testing.assert_allclose(advantage, [1.625, 1.25, 2], rtol=1e-6)


def test_v_trace_clips_errors_and_traces_apart(v_trace: Any) -> None:
    # The first error counts twice, its trace once: 2 + 0.5 * 1.25. The advantage is 2 (1 + 0.5 * 3.25 - 1).
    target, advantage = v_trace(V_TM1, V_T, R_T, HALF, RHO, ONE, clip_rho=10.0)
    np.testing.assert_allclose(target, [1 + 2.625, 3.25, 5], rtol=1e-6)
    np.testing.assert_allclose(advantage, [3.25, 1.25, 2], rtol=1e-6)
    # The other way round: 1 + 0.5 * 2 * 1.25, and an advantage of 1 (1 + 0.5 * 3.25 - 1).
    target, advantage = v_trace(V_TM1, V_T, R_T, HALF, RHO, ONE, clip_c=10.0)
    np.testing.assert_allclose(target, [1 + 2.25, 3.25, 5], rtol=1e-6)
    np.testing.assert_allclose(advantage, [1.625, 1.25, 2], rtol=1e-6)


def test_v_trace_on_policy_is_the_return(v_trace: Any) -> None:
    # 1 + 2/2 + 3/4 + 4/8 = 3.25, whatever the values on the way.
    target, advantage = v_trace(_array(7, -9, 5), _array(-9, 5, 4), R_T, HALF, ONE, ONE)
    np.testing.assert_allclose(target, [3.25, 4.5, 5], rtol=1e-6)
    np.testing.assert_allclose(advantage, [3.25 - 7, 4.5 + 9, 5 - 5], rtol=1e-6, atol=1e-6)


def test_v_trace_ignores_what_the_policy_would_not_do(v_trace: Any) -> None:
    target, advantage = v_trace(V_TM1, V_T, R_T, HALF, _array(0, 0, 0), ONE)
    np.testing.assert_allclose(target, V_TM1, rtol=1e-6)
    np.testing.assert_array_equal(advantage, 0)


def test_v_trace_stops_at_ends(v_trace: Any) -> None:
    # A termination: neither the value there nor what follows counts.
    target, advantage = v_trace(V_TM1, _array(2, 777, 4), _array(1, 2, 1000), _array(0.5, 0, 0.5), ONE, ONE)
    np.testing.assert_allclose(target[:2], [1 + 0.5 * 2, 2], rtol=1e-6)
    np.testing.assert_allclose(advantage[:2], [2 - 1, 2 - 2], rtol=1e-6, atol=1e-6)
    # A time limit: the value there counts, what follows does not.
    target, advantage = v_trace(V_TM1, _array(2, 10, 4), _array(1, 2, 1000), HALF, ONE, _array(1, 0, 1))
    np.testing.assert_allclose(target[:2], [1 + 0.5 * 7, 2 + 0.5 * 10], rtol=1e-6)
    np.testing.assert_allclose(advantage[:2], [4.5 - 1, 7 - 2], rtol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_v_trace_against_rlax(v_trace: Any, length: int) -> None:
    rng = np.random.default_rng(length)
    for _ in range(5):
        r_t, discount_t, _, lambda_t = _random(rng, length)
        v = jnp.asarray(rng.normal(size=length + 1), jnp.float32)
        rho = jnp.asarray(np.exp(rng.normal(size=length)), jnp.float32)
        ours = v_trace(v[:-1], v[1:], r_t, discount_t, rho, lambda_t, clip_rho=1.3)
        theirs = rlax.vtrace_td_error_and_advantage(
            v[:-1], v[1:], r_t, discount_t, rho, lambda_t, clip_rho_threshold=1.3, clip_pg_rho_threshold=1.3
        )
        np.testing.assert_allclose(ours.target_tm1, theirs.errors + v[:-1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.advantage_tm1, theirs.pg_advantage, rtol=1e-4, atol=1e-5)


def test_no_gradient_flows_into_v_trace() -> None:
    gradient = jax.grad(lambda v, rho: sum(map(jnp.sum, vtrace(v, v, R_T, HALF, rho, ONE))), argnums=(0, 1))(V_T, RHO)
    np.testing.assert_array_equal(gradient, 0)


def test_v_trace_of_a_batch_without_vmap_is_refused() -> None:
    with pytest.raises(AssertionError):
        vtrace(*(jnp.ones((2, 3)),) * 6)
