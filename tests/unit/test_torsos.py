"""Running statistics against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql.networks import torsos


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_statistics_are_those_of_all_batches_together(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(5 * i, 1 + i, (n, *shape)).astype(np.float32) for i, n in enumerate((1, 7, 64, 2))]
    statistics = torsos.init_statistics(shape)
    update = jax.jit(torsos.update_statistics)
    for last in range(len(batches)):
        statistics = update(statistics, batches[last])
        everything = np.concatenate(batches[: last + 1])
        assert statistics.seen == len(everything)
        np.testing.assert_allclose(statistics.mean, everything.mean(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(statistics.variance, everything.var(axis=0), rtol=1e-4, atol=1e-5)


def test_large_offsets_keep_their_variance() -> None:
    # The naive E[x^2] - E[x]^2 loses all digits here.
    rng = np.random.default_rng(1)
    batches = [(1000 + rng.normal(size=(256, 1))).astype(np.float32) for _ in range(20)]
    statistics = torsos.init_statistics((1,))
    for batch in batches:
        statistics = torsos.update_statistics(statistics, jnp.asarray(batch))
    np.testing.assert_allclose(statistics.variance, np.concatenate(batches).var(axis=0), rtol=1e-2)


def test_normalise_in_numbers() -> None:
    statistics = torsos.Statistics(jnp.array(10.0), jnp.array([1.0, -2.0]), jnp.array([4.0, 0.25]))
    normalised = torsos.normalise(statistics, jnp.array([[5.0, -2.0], [0.0, -1.0]]))
    np.testing.assert_allclose(normalised, [[2.0, 0.0], [-0.5, 2.0]])


def test_normalise_clips() -> None:
    statistics = torsos.Statistics(jnp.array(1.0), jnp.zeros(2), jnp.ones(2))
    far = jnp.array([1e6, -1e6])
    np.testing.assert_array_equal(torsos.normalise(statistics, far), [10, -10])
    np.testing.assert_array_equal(torsos.normalise(statistics, far, limit=3.0), [3, -3])


def test_before_any_observation_nothing_changes() -> None:
    x = jnp.array([[0.5, -3.0]])
    np.testing.assert_array_equal(torsos.normalise(torsos.init_statistics((2,)), x), x)


def test_a_constant_sensor_does_not_amplify_its_noise() -> None:
    statistics = torsos.init_statistics((1,))
    for _ in range(5):
        statistics = torsos.update_statistics(statistics, jnp.full((32, 1), 7.0))
    np.testing.assert_allclose(statistics.variance, 0, atol=1e-6)
    # A deviation of 0.001 is 0.1 of the floor sqrt(1e-4), not infinitely many deviations.
    np.testing.assert_allclose(torsos.normalise(statistics, jnp.array([[7.0], [7.001]])), [[0.0], [0.1]], atol=1e-3)


def test_magnify_in_numbers() -> None:
    # 0 is the sensor's own, wherever its mean is; far from it only the side is left.
    statistics = torsos.Statistics(jnp.array(10.0), jnp.array([1.0, -2.0]), jnp.array([4.0, 0.25]))
    magnified = torsos.magnify(statistics, jnp.array([[0.5, 0.0], [-0.05, 1.0], [100.0, -0.125]]), times=4.0)
    np.testing.assert_allclose(magnified, [[0.380797, 0.0], [-0.049834, 0.5], [0.5, -0.380797]], atol=1e-5)
