"""Proposals: numbers by hand, likelihoods against enumeration, samples against likelihoods."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from aql.actions import ActionSpace, Discrete, Interval
from aql.networks import apply
from aql.networks.proposals import Proposal

PAIR = ActionSpace((Discrete(2), Discrete(2)))
SMALL = ActionSpace((Discrete(2), Discrete(3), Interval(0, 1, bins=4)))
SMALL_ONE_HOT = ActionSpace(SMALL.subactions, interval_encoding="one-hot")
VALUES = ActionSpace((Interval(0, 1, bins=3), Interval(0, 1, bins=3), Interval(0, 1, bins=2)))
HYBRID = ActionSpace((Discrete(3), Interval(-2, 2), Discrete(2)))
CONTINUOUS = ActionSpace((Interval(0, 1), Interval(-5, 5), Interval(-1, 1)))
STATE = jnp.zeros((1, 1))


def _hand(proposal: Proposal, head: Any, prefix: Any = None) -> Any:
    """Parameters whose tower is silent, so that the head's bias [D, K] alone speaks for the state."""
    shapes = jax.eval_shape(
        functools.partial(proposal.init, method="likelihood"),
        jax.random.key(0),
        STATE,
        jnp.zeros((1, proposal.space.dimensions)),
    )
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)
    params["params"]["head"]["bias"][:] = head
    if prefix is not None:
        assert params["params"]["prefix"].shape == np.shape(prefix)
        params["params"]["prefix"][:] = prefix
    return params


def _random(proposal: Proposal, embedding_length: int = 3, scale: float = 2.0) -> Any:
    """Random parameters, large enough that the state and the prefix matter."""
    embedding = jnp.zeros((1, embedding_length))
    params = jax.jit(functools.partial(proposal.init, method="likelihood"))(
        jax.random.key(7), embedding, jnp.zeros((1, proposal.space.dimensions))
    )
    if proposal.autoregressive:
        params["params"]["prefix"] = scale * jax.random.normal(jax.random.key(8), params["params"]["prefix"].shape)
    return params


def _likelihood(proposal: Proposal, params: Any, action: Any, embedding: Any = STATE) -> Any:
    action = jnp.asarray(action, jnp.float32)
    embedding = jnp.broadcast_to(embedding, (*action.shape[:-1], embedding.shape[-1]))
    return _jit_likelihood(proposal)(params, embedding, action)


@functools.cache
def _jit_likelihood(proposal: Proposal) -> Any:
    return jax.jit(lambda params, e, a: apply(proposal, params, e, a, method="likelihood"))


@functools.cache
def _jit_sample(proposal: Proposal, count: int) -> Any:
    return jax.jit(lambda params, key, e: proposal.apply(params, e, key, count, method="sample"))


def _sample(proposal: Proposal, params: Any, count: int, embedding: Any = STATE, seed: int = 0) -> np.ndarray:
    return np.asarray(_jit_sample(proposal, count)(params, jax.random.key(seed), embedding))


def _binary_entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


# Likelihood and entropy by hand.

# p(a_1 = 1) = 3/4. The prefix of a_2: choice 1 of a_1 adds ln 4 to its choice 1, so p(a_2 = 1 | 1) = 4/5,
# p(a_2 = 1 | 0) = 1/2. The weights of 9 lead from a sub-action to itself or backwards and must not count.
PAIR_HEAD = [[0, math.log(3)], [0, 0]]
PAIR_PREFIX = np.full((4, 2, 2), 9.0)
PAIR_PREFIX[:2, 1] = [[0, 0], [0, math.log(4)]]
PAIR_PREFIX[:, 0, 0] = -9  # unequal, or the softmax would hide them
PAIR_PREFIX[2:, 1, 0] = -9


@pytest.mark.parametrize(
    ("action", "probability", "second"),
    [([0, 0], 1 / 8, 1 / 2), ([0, 1], 1 / 8, 1 / 2), ([1, 0], 3 / 20, 1 / 5), ([1, 1], 12 / 20, 1 / 5)],
)
def test_autoregressive_choices(action: Any, probability: float, second: float) -> None:
    proposal = Proposal(PAIR, (1,))
    log_prob, entropy = _likelihood(proposal, _hand(proposal, PAIR_HEAD, PAIR_PREFIX), [action])
    np.testing.assert_allclose(log_prob, math.log(probability), rtol=1e-5)
    np.testing.assert_allclose(entropy, _binary_entropy(1 / 4) + _binary_entropy(second), rtol=1e-5)


def test_independent_choices() -> None:
    proposal = Proposal(PAIR, (1,), autoregressive=False)
    params = _hand(proposal, [[0, math.log(3)], [0, math.log(4)]])
    assert "prefix" not in params["params"]
    log_prob, entropy = _likelihood(proposal, params, [[0, 0], [1, 1]])
    np.testing.assert_allclose(np.exp(log_prob), [1 / 20, 12 / 20], rtol=1e-5)
    np.testing.assert_allclose(entropy, _binary_entropy(1 / 4) + _binary_entropy(1 / 5), rtol=1e-5)


@pytest.mark.parametrize("encoding", ["value", "one-hot"])
def test_discretised_intervals(encoding: Any) -> None:
    space = ActionSpace((Interval(10, 20, bins=3), Interval(-1, 1, bins=2)), interval_encoding=encoding)
    proposal = Proposal(space, (1,))
    prefix = np.zeros((len(space.feature_owner), 2, 3))
    if encoding == "value":
        prefix[0, 1, 1] = math.log(3)  # the value itself: -ln 3, 0 or ln 3
    else:
        prefix[:3, 1, 1] = [-math.log(3), 0, math.log(3)]
    params = _hand(proposal, [[0, math.log(2), 0], [0, 0, 0]], prefix)
    log_prob, entropy = _likelihood(proposal, params, [[-1, 1], [0, 1], [1, 1], [1, -1]])
    np.testing.assert_allclose(np.exp(log_prob), [1 / 4 / 4, 1 / 2 / 2, 1 / 4 * 3 / 4, 1 / 4 / 4], rtol=1e-5)
    first = 1.5 * math.log(2)  # H(1/4, 1/2, 1/4)
    np.testing.assert_allclose(entropy, first + np.array([*map(_binary_entropy, [1 / 4, 1 / 2, 1 / 4, 1 / 4])]))


def test_gaussian() -> None:
    proposal = Proposal(ActionSpace((Interval(3, 9),)), (1,), gaussian_std=0.5)
    log_prob, entropy = _likelihood(proposal, _hand(proposal, [[0.25]]), [[0.5], [0.25], [1.0]])
    # -(a - 1/4)^2 / (2 * 0.25) - ln(0.5 sqrt(2 pi))
    np.testing.assert_allclose(log_prob, [-0.35079135, -0.22579135, -1.35079135], rtol=1e-5)
    np.testing.assert_allclose(entropy, 0.72579135, rtol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 0.9, -1.5])
def test_a_clipped_gaussian_is_what_is_sampled(mean: float) -> None:
    """Densities and the masses at the bounds add up to 1, and the mean gradient of their logarithms is 0."""
    proposal = Proposal(ActionSpace((Interval(-1, 1),)), (1,), gaussian_std=0.5, clipped=True)
    params = _hand(proposal, [[mean]])
    inside = np.linspace(-1, 1, 4001)[1:-1]
    actions = jnp.asarray([-1.0, *inside, 1.0], jnp.float32)[:, None]

    def log_probs(params: Any) -> jax.Array:
        return _likelihood(proposal, params, actions).log_prob

    weight = np.exp(np.asarray(log_probs(params), np.float64)) * np.r_[1, np.full(len(inside), 2 / 4000), 1]
    assert weight.sum() == pytest.approx(1, abs=2e-3)
    assert weight[-1] == pytest.approx(stats.norm(mean, 0.5).sf(1), rel=1e-4)
    score = jax.grad(lambda params: jnp.sum(jnp.asarray(weight, jnp.float32) * log_probs(params)))(params)
    assert float(score["params"]["head"]["bias"][0, 0]) == pytest.approx(0, abs=5e-3)


def test_gaussian_uses_the_unclipped_mean() -> None:
    proposal = Proposal(ActionSpace((Interval(-1, 1),)), (1,), gaussian_std=1.0)
    log_prob, _ = _likelihood(proposal, _hand(proposal, [[3.0]]), [[1.0]])
    np.testing.assert_allclose(log_prob, -2 - 0.91893853, rtol=1e-6)


def test_hybrid() -> None:
    space = ActionSpace((Discrete(2), Interval(0, 1)))
    proposal = Proposal(space, (1,), gaussian_std=0.5)
    prefix = np.zeros((3, 2, 2))
    prefix[1, 1, 0] = 0.5  # choice 1 moves the mean from 0.25 to 0.75
    prefix[:, 1, 1] = 77  # a continuous sub-action has no second parameter
    params = _hand(proposal, [[0, math.log(3)], [0.25, 55]], prefix)
    log_prob, entropy = _likelihood(proposal, params, [[0, 0.5], [1, 0.5], [1, 0.75]])
    expected = [math.log(1 / 4) - 0.35079135, math.log(3 / 4) - 0.35079135, math.log(3 / 4) - 0.22579135]
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    np.testing.assert_allclose(entropy, _binary_entropy(1 / 4) + 0.72579135, rtol=1e-5)


def test_leading_axes_are_kept() -> None:
    proposal = Proposal(SMALL, (4,))
    params = _random(proposal)
    action = SMALL.sample(jax.random.key(0), (2, 5))
    embedding = jax.random.normal(jax.random.key(1), (2, 5, 3))
    flat = _likelihood(proposal, params, action.reshape(10, 3), embedding.reshape(10, 3))
    nested = _likelihood(proposal, params, action, embedding)
    assert nested.log_prob.shape == nested.entropy.shape == (2, 5)
    np.testing.assert_allclose(nested.log_prob.ravel(), flat.log_prob, rtol=1e-5)


# Enumerated spaces.

ENUMERATED = {
    "value": (SMALL, True),
    "one-hot": (SMALL_ONE_HOT, True),
    "all-values": (VALUES, True),
    "independent": (SMALL, False),
}


@pytest.mark.parametrize("name", ENUMERATED)
def test_likelihoods_sum_to_1_and_samples_follow_them(name: str) -> None:
    space, autoregressive = ENUMERATED[name]
    proposal = Proposal(space, (8,), autoregressive)
    params = _random(proposal)
    everything = space.enumerate()
    embedding = jnp.array([[1.0, -1.0, 0.5], [-2.0, 0.0, 1.0]])
    count = 20_000
    samples = _sample(proposal, params, count, embedding)
    assert samples.shape == (2, count, 3)
    tables = []
    for state, drawn in zip(embedding, samples, strict=True):
        probability = np.exp(np.asarray(_likelihood(proposal, params, everything, state[None]).log_prob, np.float64))
        np.testing.assert_allclose(probability.sum(), 1, rtol=1e-5)
        distance = np.abs(drawn[:, None] - everything).max(axis=-1)
        assert distance.min(axis=1).max() < 1e-5  # nothing but actions of the space
        observed = np.bincount(distance.argmin(axis=1), minlength=len(everything))
        expected = count * probability / probability.sum()
        order = np.argsort(-expected)  # rare actions share a cell: chi-square needs a few in each
        cells = np.minimum(np.arange(len(order)), np.sum(expected >= 5) - 1)
        observed = np.bincount(cells, weights=observed[order])
        expected = np.bincount(cells, weights=expected[order])
        assert stats.chisquare(observed, expected).pvalue > 1e-3
        tables.append(probability)
    assert np.abs(tables[0] - tables[1]).max() > 0.05  # it depends on the state


def test_samples_of_a_hybrid_follow_the_likelihood() -> None:
    proposal = Proposal(HYBRID, (8,), gaussian_std=0.4)
    params = _random(proposal, scale=0.8)
    embedding = jnp.array([[0.3, -0.3, 0.1]])
    count = 20_000
    drawn = _sample(proposal, params, count, embedding)[0]
    choice, value, last = drawn.T
    assert set(choice) <= {0, 1, 2}
    assert set(last) <= {0, 1}
    # The first sub-action: the likelihood, summed and integrated over the others.
    grid = np.linspace(-8, 8, 4001)
    masses, means = [], []
    for k in range(3):
        density = np.zeros_like(grid)
        for b in (0, 1):
            actions = np.stack([np.full_like(grid, k), grid, np.full_like(grid, b)], axis=1)
            density += np.exp(_likelihood(proposal, params, actions, embedding).log_prob)
        masses.append(np.trapezoid(density, grid))
        means.append(grid[np.argmax(density)])
    np.testing.assert_allclose(np.sum(masses), 1, rtol=1e-3)
    observed = np.bincount(choice.astype(int), minlength=3)
    assert stats.chisquare(observed, count * np.array(masses) / np.sum(masses)).pvalue > 1e-3
    # The value given the choice: the Gaussian, its tails gathered at the bounds.
    assert np.ptp(means) > 0.1
    for k in range(3):
        given = value[choice == k]
        assert np.abs(given).max() <= 1
        for x in (-0.9, -0.5, 0.0, 0.5, 0.9):
            p = stats.norm.cdf(x, means[k], 0.4)
            assert abs(np.mean(given <= x) - p) < 4 * math.sqrt(p * (1 - p) / len(given)) + 2e-3
    # The last given both: what is observed minus what is expected is noise, wherever the value lies.
    zero, one = (
        _likelihood(proposal, params, np.c_[drawn[:, :2], np.full(count, b)], embedding).log_prob for b in (0, 1)
    )
    p_one = 1 / (1 + np.exp(np.asarray(zero - one, np.float64)))
    assert np.std(p_one) > 0.02
    residual = last - p_one
    noise = math.sqrt(np.mean(p_one * (1 - p_one)) / count)
    assert abs(np.mean(residual)) < 4 * noise
    assert abs(np.mean(residual * value)) < 4 * noise


def test_keys_and_states_draw_different_samples() -> None:
    proposal = Proposal(SMALL, (8,))
    params = _random(proposal)
    embedding = jnp.zeros((2, 3))
    once, again, other = (_sample(proposal, params, 50, embedding, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert np.any(once != other)
    assert np.any(once[0] != once[1])  # equal states, independent draws


# Who depends on whom.


def test_weights_of_the_prefix_lead_forward_only() -> None:
    proposal = Proposal(SMALL_ONE_HOT, (4,))
    params = _random(proposal)
    action = SMALL_ONE_HOT.enumerate()

    def total(params: Any) -> Any:
        embedding = jnp.ones((len(action), 3))
        log_prob, entropy = apply(proposal, params, embedding, jnp.asarray(action), method="likelihood")
        return jnp.sum(jnp.sin(log_prob)) + jnp.sum(entropy)

    gradient = np.asarray(jax.jit(jax.grad(total))(params)["params"]["prefix"])  # [F, D, K]
    earlier = SMALL_ONE_HOT.feature_owner[:, None] < np.arange(3)
    assert np.all(gradient[~earlier] == 0)
    for d in (1, 2):  # every earlier choice is heard by every real choice of d
        heard = gradient[SMALL_ONE_HOT.feature_owner < d, d, : SMALL_ONE_HOT.num_choices[d]]
        assert np.all(heard != 0)


@pytest.mark.parametrize("autoregressive", [True, False])
def test_conditional_entropies_depend_on_earlier_values_alone(autoregressive: bool) -> None:
    proposal = Proposal(VALUES, (4,), autoregressive)
    params = _random(proposal)

    def entropy(action: Any) -> Any:
        return apply(proposal, params, jnp.ones((1, 3)), action[None], method="likelihood").entropy[0]

    jacobian = np.asarray(jax.jit(jax.jacobian(entropy))(jnp.array([1.0, 0.0, -1.0])))
    if autoregressive:
        assert np.all(jacobian[:2] != 0)
        assert jacobian[2] == 0
    else:
        np.testing.assert_array_equal(jacobian, 0)


@pytest.mark.parametrize("autoregressive", [True, False])
@pytest.mark.parametrize("space", [SMALL, CONTINUOUS], ids=["choices", "gaussian"])
def test_samples_hear_earlier_sub_actions_alone(space: ActionSpace, autoregressive: bool) -> None:
    proposal = Proposal(space, (4,), autoregressive)
    params = _random(proposal, scale=0.7)
    before = _sample(proposal, params, 200, jnp.ones((1, 3)))[0]
    for d in range(3):
        moved = jax.tree.map(lambda x: x, params)
        head = moved["params"]["head"]
        head["bias"] = head["bias"].at[d, 0].add(0.5)
        after = _sample(proposal, moved, 200, jnp.ones((1, 3)))[0]
        changed = np.any(before != after, axis=0)
        assert changed[d]
        assert not changed[:d].any()
        assert changed[d + 1 :].all() if autoregressive else not changed[d + 1 :].any()


# Padding, bounds and gradients.


@pytest.mark.parametrize("autoregressive", [True, False])
def test_choices_that_do_not_exist_are_never_drawn(autoregressive: bool) -> None:
    space = ActionSpace((Discrete(2), Discrete(5), Discrete(1), Interval(0, 1, bins=3)))
    proposal = Proposal(space, (4,), autoregressive)
    head = np.zeros((4, 5))
    head[0, 2:] = head[2, 1:] = head[3, 3:] = 1000
    params = _hand(proposal, head)
    drawn = _sample(proposal, params, 3000)[0]
    assert [sorted(set(column)) for column in drawn.T] == [[0, 1], [0, 1, 2, 3, 4], [0], [-1, 0, 1]]
    log_prob, entropy = _likelihood(proposal, params, [[0, 4, 0, 1]])
    np.testing.assert_allclose(log_prob, -math.log(2 * 5 * 3), rtol=1e-5)
    np.testing.assert_allclose(entropy, math.log(2 * 5 * 3), rtol=1e-5)


@pytest.mark.parametrize("mean", [0.9, 3.0, -50.0])
def test_gaussian_samples_stay_within_bounds(mean: float) -> None:
    proposal = Proposal(CONTINUOUS, (4,))
    drawn = _sample(proposal, _hand(proposal, np.full((3, 1), mean)), 500)
    assert np.abs(drawn).max() <= 1
    assert np.abs(drawn).max() == 1  # clipped, not squashed
    if mean < -10:
        np.testing.assert_array_equal(drawn, -1)


def test_a_certain_proposal_draws_one_action() -> None:
    proposal = Proposal(SMALL, (4,))
    head = np.zeros((3, 4))
    head[0, 1] = head[1, 2] = head[2, 0] = 200
    params = _hand(proposal, head)
    np.testing.assert_array_equal(_sample(proposal, params, 1000)[0], np.tile([1, 2, -1], (1000, 1)))
    log_prob, entropy = _likelihood(proposal, params, [[1, 2, -1]])
    np.testing.assert_allclose([log_prob[0], entropy[0]], 0, atol=1e-6)


@pytest.mark.parametrize("space", [SMALL, SMALL_ONE_HOT, HYBRID, CONTINUOUS], ids=["value", "one-hot", "hybrid", "box"])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_gradients_are_finite(space: ActionSpace, scale: float) -> None:
    proposal = Proposal(space, (4,))
    params = jax.tree.map(lambda x: scale * x, _random(proposal))
    action = space.sample(jax.random.key(0), (16,))

    def loss(params: Any) -> Any:
        log_prob, entropy = apply(proposal, params, jnp.ones((16, 3)), action, method="likelihood")
        return -jnp.mean(log_prob) - 0.01 * jnp.mean(entropy)

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))


def test_the_entropy_of_a_gaussian_gives_no_gradient() -> None:
    proposal = Proposal(CONTINUOUS, (4,))
    params = _random(proposal)

    def entropy(params: Any) -> Any:
        return apply(proposal, params, jnp.ones((1, 3)), jnp.zeros((1, 3)), method="likelihood").entropy[0]

    gradient = jax.jit(jax.grad(entropy))(params)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(gradient))


def test_descending_the_loss_makes_an_action_likely() -> None:
    proposal = Proposal(SMALL, (4,))
    params = _random(proposal)
    target = jnp.array([[1.0, 2.0, -1 / 3]])

    @jax.jit
    def step(params: Any) -> Any:
        def loss(p: Any) -> Any:
            return -apply(proposal, p, jnp.ones((1, 3)), target, method="likelihood").log_prob[0]

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    before = np.mean(np.all(np.isclose(_sample(proposal, params, 2000, jnp.ones((1, 3)))[0], target), axis=1))
    for _ in range(300):
        params = step(params)
    after = np.mean(np.all(np.isclose(_sample(proposal, params, 2000, jnp.ones((1, 3)))[0], target), axis=1))
    assert before < 0.3
    assert after > 0.9


# The mode.


def test_the_mode_in_numbers() -> None:
    """The first sub-action prefers 1, and this makes the second prefer 0, which it would not by itself."""
    proposal = Proposal(PAIR, (4,))
    prefix = np.zeros((4, 2, 2))
    prefix[1, 1] = [3, 0]  # the feature "the first is 1" speaks for 0 in the second
    params = _hand(proposal, [[0, 1], [0, 2]], prefix)
    np.testing.assert_array_equal(apply(proposal, params, jnp.zeros((2, 1)), method="mode"), [[1, 0], [1, 0]])
    independent = Proposal(PAIR, (4,), autoregressive=False)
    params = _hand(independent, [[0, 1], [0, 2]])
    np.testing.assert_array_equal(apply(independent, params, STATE, method="mode"), [[1, 1]])


def test_the_mode_of_a_hybrid_is_choices_and_clipped_means() -> None:
    proposal = Proposal(HYBRID, (4,))
    params = _hand(proposal, [[0, 5, 1], [1.5, 9, 9], [1, 0, 7]])  # the last sub-action has no third choice
    np.testing.assert_array_equal(apply(proposal, params, STATE, method="mode"), [[1, 1, 0]])
    params = _hand(proposal, [[0, 5, 6], [-0.25, 9, 9], [0, 1, 7]])
    np.testing.assert_array_equal(apply(proposal, params, STATE, method="mode"), [[2, -0.25, 1]])


@pytest.mark.parametrize("autoregressive", [True, False])
@pytest.mark.parametrize("space", [SMALL, SMALL_ONE_HOT, VALUES], ids=["small", "one-hot", "values"])
def test_a_certain_proposal_has_its_sample_as_mode(space: ActionSpace, autoregressive: bool) -> None:
    proposal = Proposal(space, (4,), autoregressive)
    params = _random(proposal)
    params = jax.tree.map(lambda leaf: 50 * leaf, params)  # so certain that a sample is the likeliest
    embedding = jax.random.normal(jax.random.key(1), (20, 3))
    mode = apply(proposal, params, embedding, method="mode")
    samples = apply(proposal, params, embedding, jax.random.key(2), 5, method="sample")
    same = np.all(np.asarray(samples) == np.asarray(mode)[:, None], axis=-1)
    assert same.mean() > 0.9
    assert len(np.unique(np.asarray(mode), axis=0)) > 1


@pytest.mark.parametrize("autoregressive", [True, False])
def test_conditional_probabilities_multiply_to_the_likelihood(autoregressive: bool) -> None:
    proposal = Proposal(SMALL, (4,), autoregressive)
    params, action = _random(proposal), jnp.asarray(SMALL.enumerate())
    embedding = jnp.broadcast_to(jnp.array([0.3, -1.0, 2.0]), (len(action), 3))
    said = apply(proposal, params, embedding, action, method="conditionals")
    chosen = jnp.take_along_axis(said.probability, SMALL.to_index(action)[..., None], axis=-1)
    np.testing.assert_allclose(
        np.prod(chosen, axis=(1, 2)), np.exp(_likelihood(proposal, params, action, embedding).log_prob), rtol=1e-4
    )
    np.testing.assert_allclose(np.sum(said.probability, axis=-1), np.ones((len(action), 3)), rtol=1e-5)


def test_conditional_gaussians_are_those_of_the_likelihood() -> None:
    proposal = Proposal(CONTINUOUS, (4,), gaussian_std=0.25)
    params, action = _random(proposal), jnp.array([[0.5, -0.25, 0.75]])
    embedding = jnp.array([[0.3, -1.0, 2.0]])
    said = apply(proposal, params, embedding, action, method="conditionals")
    expected = stats.norm(said.mean, said.std).logpdf(np.asarray(action)).sum()
    assert float(said.std) == 0.25
    np.testing.assert_allclose(_likelihood(proposal, params, action, embedding).log_prob, [expected], rtol=1e-4)
