"""Averages of networks: what each one is the mean of, and whose turn it is."""

import jax
import jax.numpy as jnp
import numpy as np

from aql.agents import averages


def _learn(moments: int, count: int) -> averages.Averages:
    """A network whose weight is the number of its moment, and in between more."""
    weights = jnp.arange(1, moments * averages.EVERY + 1) / averages.EVERY
    state = averages.start({"weight": jnp.zeros(())}, count)
    return jax.lax.scan(lambda state, weight: (averages.extend(state, {"weight": weight}), None), state, weights)[0]


def test_each_average_is_a_mean_over_its_own_stretch() -> None:
    """With 4 of them a stretch is a twentieth of all moments, rounded up: one until 20, two until 40."""
    np.testing.assert_array_equal(np.sort(_learn(4, 4).networks["weight"]), [1, 2, 3, 4])
    np.testing.assert_array_equal(np.sort(_learn(20, 4).networks["weight"]), [17, 18, 19, 20])
    after = _learn(28, 4)  # 20 and 21; 22 and 23; 24 and 25; 26 and 27; 28
    np.testing.assert_array_equal(np.sort(after.networks["weight"]), [22.5, 24.5, 26.5, 28])
    assert after.networks["weight"][after.newest] == 28
    assert int(after.began) == 28
    assert int(after.updates) == 28 * averages.EVERY


def test_what_is_between_two_moments_does_not_count() -> None:
    state = _learn(3, 2)
    for update in range(averages.EVERY - 1):
        state = averages.extend(state, {"weight": jnp.float32(100 + update)})
    np.testing.assert_array_equal(np.sort(state.networks["weight"]), [2, 3])
    state = averages.extend(state, {"weight": jnp.float32(4)})
    np.testing.assert_array_equal(np.sort(state.networks["weight"]), [3, 4])


def test_together_they_span_the_last_fifth() -> None:
    for count in (1, 4):
        means = np.asarray(_learn(2_000, count).networks["weight"])
        assert 1_600 <= means.min() <= means.max() <= 2_000
    assert means.min() < 1_800
    assert np.all(np.diff(np.sort(means)) >= 40)


def test_they_take_turns() -> None:
    state = averages.start({"weight": jnp.zeros(())}, 3)._replace(networks={"weight": jnp.array([5.0, 6.0, 7.0])})
    whose = [float(state.at(jnp.int32(decision), turn=2)["weight"]) for decision in range(8)]
    assert whose == [5, 5, 6, 6, 7, 7, 5, 5]
