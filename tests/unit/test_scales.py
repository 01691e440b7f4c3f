import jax.numpy as jnp
import numpy as np
import pytest

from aql.scales import Scale


def test_small_values_have_room_of_their_own() -> None:
    q = jnp.array([0.0, 1e-6, 1e-4, 1e-2, 1.0, 50.0, 100.0])
    y = Scale(most=100.0, share=0.2).compress(q)
    # 80 x + 20 log(1 + 1e12 x) / log(1 + 1e12) of x = 0, 1e-8, 1e-6, 1e-4, 0.01, 0.5, 1
    np.testing.assert_allclose(y, [0, 6.66674, 10.00008, 13.34133, 17.46667, 59.49828, 100], rtol=1e-5)


def test_values_below_zero_count_as_those_above() -> None:
    scale = Scale(most=200.0, share=0.5)
    np.testing.assert_allclose(scale.compress(jnp.array([-3.0])), -scale.compress(jnp.array([3.0])))
    np.testing.assert_allclose(scale.expand(jnp.array([-3.0])), -scale.expand(jnp.array([3.0])))


@pytest.mark.parametrize("most", [1.0, 100.0, 2e4])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.9])
def test_expanding_undoes_compressing(share: float, most: float) -> None:
    q = most * np.logspace(-14, 0, 500, dtype=np.float32)
    scale = Scale(most, share)
    np.testing.assert_allclose(scale.expand(scale.compress(jnp.asarray(q))), q, rtol=2e-5)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_the_best_stays_the_best(share: float) -> None:
    said = jnp.linspace(-120.0, 120.0, 2001)
    assert (jnp.diff(Scale(100.0, share).expand(said)) >= 0).all()


def test_without_a_share_nothing_changes_and_nothing_has_to_be_known() -> None:
    q = jnp.array([-5.0, 1e-9, 3e4])
    assert Scale(most=np.inf, share=0.0).compress(q) is q
    assert Scale(most=np.inf, share=0.0).expand(q) is q
