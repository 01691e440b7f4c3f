"""Losses in literal numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import losses


def test_masked_mean_in_numbers() -> None:
    x = jnp.array([[1.0, 2.0], [4.0, 100.0]])
    assert losses.masked_mean(x, jnp.array([[True, True], [True, False]])) == pytest.approx(7 / 3)
    assert losses.masked_mean(x, jnp.array([[True, False], [False, False]])) == 1
    assert losses.masked_mean(x, jnp.ones((2, 2), bool)) == pytest.approx(107 / 4)


def test_masked_mean_of_nothing_is_0_and_has_gradient_0() -> None:
    x, nothing = jnp.array([3.0, 5.0]), jnp.zeros(2, bool)
    assert losses.masked_mean(x, nothing) == 0
    np.testing.assert_array_equal(jax.grad(losses.masked_mean)(x, nothing), [0, 0])


def test_a_mask_serves_every_critic() -> None:
    # [critics, B] against [B]: the mean over both, not twice it.
    x = jnp.array([[1.0, 9.0], [3.0, 9.0]])
    assert losses.masked_mean(x, jnp.array([True, False])) == 2


def test_td_loss_in_numbers() -> None:
    # Errors 2, -1 and one of 1000 that is no transition: (4 + 1) / 2 / 2.
    q, target = jnp.array([1.0, 3.0, 0.0]), jnp.array([3.0, 2.0, 1000.0])
    mask = jnp.array([True, True, False])
    assert losses.td_loss(q, target, mask) == pytest.approx(1.25)
    # d/dq = (q - target) / 2.
    np.testing.assert_allclose(jax.grad(losses.td_loss)(q, target, mask), [-1, 0.5, 0])


def test_prediction_loss_in_numbers() -> None:
    # Two numbers of three transitions, said by two critics; the last one is none: (1 + 4 + 9 + 0) / 2 / 4, of which
    # the second critic has all but 5.
    happened = jnp.array([[1.0, 2.0], [0.0, 3.0], [50.0, 50.0]])
    said = jnp.stack([jnp.array([[0.0, 0.0], [0.0, 3.0], [0.0, 0.0]]), jnp.array([[1.0, 2.0], [0.0, 0.0], [9.0, 9.0]])])
    mask = jnp.array([True, True, False])
    assert losses.prediction_loss(said, happened, mask) == pytest.approx((5 + 9) / 2 / 4)


def test_a_loss_as_large_as_another() -> None:
    def both(x: jax.Array, y: jax.Array) -> jax.Array:
        return losses.as_large_as(jnp.square(y), jnp.square(x))

    value, (to_x, to_y) = jax.value_and_grad(both, argnums=(0, 1))(jnp.array(2.0), jnp.array(10.0))
    assert value == 100
    assert to_x == pytest.approx(2 * 2.0 * 100 / 4)  # the gradient is as much larger as the loss is
    assert to_y == 0
    assert both(jnp.array(0.0), jnp.array(10.0)) == 0  # nothing to scale


def test_td_loss_of_resets_only() -> None:
    assert losses.td_loss(jnp.ones((2, 3)), jnp.zeros((2, 3)), jnp.zeros((2, 3), bool)) == 0


def test_proposal_loss_in_numbers() -> None:
    log_prob, entropy = jnp.array([-1.0, -3.0]), jnp.array([2.0, 4.0])
    assert losses.proposal_loss(log_prob, entropy, 0.0) == 2
    assert losses.proposal_loss(log_prob, entropy, 0.1) == pytest.approx(2 - 0.3)
    # Likelihood and entropy both go up when it is descended.
    by_log_prob, by_entropy = jax.grad(losses.proposal_loss, argnums=(0, 1))(log_prob, entropy, 0.1)
    np.testing.assert_allclose(by_log_prob, [-0.5, -0.5])
    np.testing.assert_allclose(by_entropy, [-0.05, -0.05])


def test_deterministic_policy_loss_in_numbers() -> None:
    # [critics, B]: the mean over both, and uphill is downhill; efforts [B, D] count 0.1 * (1 + 4 + 9 + 0) / 4.
    q, effort = jnp.array([[1.0, 2.0], [4.0, 5.0]]), jnp.array([[1.0, -2.0], [3.0, 0.0]])
    assert losses.deterministic_policy_loss(q, effort, 0.0) == -3
    assert losses.deterministic_policy_loss(q, effort, 0.1) == pytest.approx(-3 + 0.35)
    by_q, by_effort = jax.grad(losses.deterministic_policy_loss, argnums=(0, 1))(q, effort, 0.1)
    np.testing.assert_allclose(by_q, [[-0.25, -0.25], [-0.25, -0.25]])
    np.testing.assert_allclose(by_effort, [[0.05, -0.1], [0.15, 0]], rtol=1e-6)


def test_policy_gradient_loss_in_numbers() -> None:
    log_prob, advantage, entropy = jnp.array([-1.0, -2.0, -9.0]), jnp.array([3.0, -1.0, 1000.0]), jnp.array([1.0, 2, 9])
    mask = jnp.array([True, True, False])
    # -(3 * -1 + -1 * -2) / 2 = 0.5, and less by 0.1 * (1 + 2) / 2 for the entropy.
    assert losses.policy_gradient_loss(log_prob, advantage, entropy, mask, 0.0) == pytest.approx(0.5)
    assert losses.policy_gradient_loss(log_prob, advantage, entropy, mask, 0.1) == pytest.approx(0.35)
    by_log_prob, by_advantage, by_entropy = jax.grad(losses.policy_gradient_loss, argnums=(0, 1, 2))(
        log_prob, advantage, entropy, mask, 0.1
    )
    np.testing.assert_allclose(by_log_prob, [-1.5, 0.5, 0])  # what did better than expected becomes likelier
    np.testing.assert_array_equal(by_advantage, 0)
    np.testing.assert_allclose(by_entropy, [-0.05, -0.05, 0])
