"""Searches against brute force, against the formula 1 - (1 - p)^n, and against one another."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql.actions import ActionSpace, Discrete, Interval
from aql.errors import UserError
from aql.networks.proposals import Proposal
from aql.search import Amortized, CrossEntropy, Exact, Search, Uniform, blocks
from aql.search.base import best_of
from aql.search.blocks import score_in_blocks

SMALL = ActionSpace((Discrete(3), Interval(-1, 1, bins=5), Discrete(2)))
LARGE = ActionSpace((Discrete(10), Discrete(10), Discrete(10)))
BOX = ActionSpace(tuple(Interval(-1, 1) for _ in range(4)))
HYBRID = ActionSpace((Discrete(4), Interval(-1, 1), Interval(-1, 1, bins=5)))


def _quadratic(target: Any, scale: float = 1.0) -> Any:
    """A score [B, C] with its only maximum, 0, at the target [D] or [B, 1, D]."""
    return lambda candidates: -scale * jnp.sum(jnp.square(candidates - target), axis=-1)


def _embedding(states: int) -> Any:
    return jnp.ones((states, 2))


def _amortized(space: ActionSpace, num_proposal: int, num_uniform: int) -> tuple[Amortized, Any]:
    search = Amortized(space, Proposal(space, (4,)), num_proposal, num_uniform, entropy_weight=0.01)
    return search, jax.jit(search.init)(jax.random.key(3), _embedding(1))


def _run(search: Search, params: Any, score: Any, states: int = 4, seed: int = 0, known: Any = None) -> Any:
    def run(params: Any, key: Any, known: Any) -> Any:
        return search(params, key, _embedding(states), score, known)

    return jax.jit(run)(params, jax.random.key(seed), known)


# Blocks.


@pytest.mark.parametrize("block_floats", [1, 7, 40, 64, 10_000])
@pytest.mark.parametrize(
    ("states", "candidates"), [(1, 1), (1, 13), (5, 1), (4, 8), (5, 7), (7, 3), (3, 100)], ids=lambda n: str(n)
)
def test_blocks_change_nothing(monkeypatch: Any, block_floats: int, states: int, candidates: int) -> None:
    monkeypatch.setattr(blocks, "BLOCK_FLOATS", block_floats)
    width = 4
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(2, width)).astype(np.float32)
    halves = tuple(rng.normal(size=(states, width)).astype(np.float32) for _ in range(2))
    actions = rng.normal(size=(states, candidates, 2)).astype(np.float32)

    def values(halves: Any, actions: Any) -> Any:
        return sum((jnp.maximum(half[:, None] + actions @ weights, 0).sum(axis=-1) for half in halves), start=0.0)

    expected = sum(np.maximum(half[:, None] + actions @ weights, 0).sum(axis=-1) for half in halves)
    scores = score_in_blocks(values, halves, jnp.asarray(actions), width)
    assert scores.shape == (states, candidates)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block_floats", [1, 40, 400, 10_000])
@pytest.mark.parametrize(("states", "candidates"), [(2, 1), (5, 7), (7, 3), (11, 100)], ids=lambda n: str(n))
def test_blocks_of_shared_candidates(monkeypatch: Any, block_floats: int, states: int, candidates: int) -> None:
    monkeypatch.setattr(blocks, "BLOCK_FLOATS", block_floats)
    rng = np.random.default_rng(0)
    half, actions = rng.normal(size=(states, 4)), rng.normal(size=(1, candidates, 4))
    sizes = []

    def values(half: Any, actions: Any) -> Any:
        sizes.append(half.shape[0] * actions.shape[1] * 4)
        return jnp.sum(jnp.maximum(half[:, None] + actions, 0), axis=-1)

    scores = score_in_blocks(values, jnp.asarray(half), jnp.asarray(actions), width=4)
    expected = np.maximum(half[:, None] + actions, 0).sum(axis=-1)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    assert max(sizes) <= max(block_floats, 4)


def test_blocks_are_no_larger_than_they_may_be(monkeypatch: Any) -> None:
    monkeypatch.setattr(blocks, "BLOCK_FLOATS", 48)
    seen = []

    def values(states: Any, candidates: Any) -> Any:
        seen.append(candidates.shape)
        return candidates[..., 0] + states[:, None, 0]

    score_in_blocks(values, jnp.zeros((10, 4)), jnp.zeros((10, 6, 2)), width=4)
    score_in_blocks(values, jnp.zeros((10, 4)), jnp.zeros((10, 50, 2)), width=4)
    assert [shape for shape in seen if shape[0] * shape[1] * 4 > 48] == []
    assert (2, 6, 2) in seen
    assert (1, 10, 2) in seen  # 50 in five equal parts


# What all searches promise.


def test_best_of_in_numbers() -> None:
    candidates = jnp.array([[[1.0], [5.0], [2.0]], [[7.0], [7.0], [0.0]]])
    found = best_of(candidates, lambda c: c[..., 0])
    np.testing.assert_array_equal(found.action, [[5], [7]])
    np.testing.assert_array_equal(found.value, [5, 7])
    np.testing.assert_array_equal(found.place, [1, 0])  # the first one of equals
    found = best_of(candidates, lambda c: c[..., 0], known=jnp.array([[[9.0]], [[3.0]]]))
    np.testing.assert_array_equal(found.action, [[9], [7]])
    np.testing.assert_array_equal(found.place, [3, 0])


SEARCHES: dict[str, Any] = {
    "amortized": lambda space: _amortized(space, 6, 5),
    "amortized, proposal only": lambda space: _amortized(space, 8, 0),
    "uniform": lambda space: (Uniform(space, 7), {}),
    "cross-entropy": lambda space: (CrossEntropy(space, samples=8, elites=3, iterations=3), {}),
    "exact": lambda space: (Exact(space), {}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_winner_is_the_best_of_its_candidates(name: str) -> None:
    search, params = SEARCHES[name](SMALL)
    seen: list[Any] = []
    weights = jnp.array([0.7, 1.3, -0.4])

    def score(candidates: Any) -> Any:
        seen.append(candidates)
        return jnp.sin(3 * candidates @ weights)

    found = search(params, jax.random.key(0), _embedding(4), score)  # not jitted: the candidates can be kept
    candidates = np.concatenate(seen, axis=1)
    values = np.broadcast_to(np.sin(3 * candidates @ np.asarray(weights)), found.values.shape)
    np.testing.assert_allclose(found.values, values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.value, values.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(np.sin(3 * np.asarray(found.action) @ np.asarray(weights)), found.value, rtol=1e-5)
    everything = SMALL.enumerate()
    assert np.abs(candidates[:, :, None] - everything).max(axis=-1).min(axis=-1).max() < 1e-6


@pytest.mark.parametrize("name", SEARCHES)
def test_known_actions_win_when_they_are_best(name: str) -> None:
    search, params = SEARCHES[name](SMALL)
    target = jnp.array([[2, -1, 1], [0, 0.5, 0], [1, 1, 1], [2, 0, 0]], jnp.float32)
    found = _run(search, params, _quadratic(target[:, None]), known=target[:, None])
    np.testing.assert_allclose(found.action, target, atol=1e-6)
    np.testing.assert_allclose(found.value, 0, atol=1e-6)
    worse = jnp.broadcast_to(jnp.array([50.0, 50.0, 50.0]), (4, 1, 3))
    found = _run(search, params, _quadratic(target[:, None]), known=worse)
    assert np.max(found.action) <= 2


@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "exact"])
def test_keys_matter(name: str) -> None:
    search, params = SEARCHES[name](BOX)
    score = _quadratic(jnp.zeros(4))
    once, again, other = (_run(search, params, score, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(once.action, again.action)
    assert np.any(once.action != other.action)
    assert len(np.unique(once.value)) == 4  # equal states, independent searches


# Exact.


def test_exact_is_brute_force() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(4, int(SMALL.size))).astype(np.float32)

    def score(candidates: Any) -> Any:
        index = SMALL.to_index(candidates)
        return jnp.take_along_axis(jnp.asarray(table), (index[..., 0] * 5 + index[..., 1]) * 2 + index[..., 2], axis=1)

    found = _run(Exact(SMALL), {}, score)
    np.testing.assert_array_equal(found.value, table.max(axis=1))
    np.testing.assert_array_equal(found.action, SMALL.enumerate()[table.argmax(axis=1)])


def test_exact_refuses_what_it_cannot_enumerate() -> None:
    assert Exact(ActionSpace((Discrete(100_000),))).space.size == 100_000
    with pytest.raises(UserError, match=r"has 1e\+05 actions|has 100,?001 actions") as caught:
        Exact(ActionSpace((Discrete(100_001),)))
    assert "100,000" in str(caught.value)
    assert "`aql`" in str(caught.value)
    with pytest.raises(UserError, match=r"4\.8e\+14.*`aql`"):
        Exact(ActionSpace(tuple(Interval(-1, 1, bins=5) for _ in range(21))))
    with pytest.raises(UserError, match=r"inf.*`aql`"):
        Exact(BOX)


def test_exact_refuses_a_space_beyond_all_floats() -> None:
    with pytest.raises(UserError, match="`aql`"):
        Exact(ActionSpace((Discrete(10),) * 400))


# How often the best action is found.


@functools.cache
def _hits(search: Search, states: int, seed: int, proposal_seed: int | None = None) -> Any:
    """How many of many equal states find the one action that scores."""
    params = {} if proposal_seed is None else search.init(jax.random.key(proposal_seed), _embedding(1))
    found = _run(search, params, _quadratic(jnp.array([3.0, 1.0, 4.0])), states, seed)
    return np.all(np.asarray(found.action) == [3, 1, 4], axis=1)


def _is_rate(hits: np.ndarray, expected: float) -> bool:
    """Whether hits are as frequent as expected, up to four standard errors."""
    error = math.sqrt(expected * (1 - expected) / len(hits))
    return bool(abs(np.mean(hits) - expected) < 4 * error)


@pytest.mark.parametrize("count", [1, 50, 700])
def test_uniform_finds_the_best_action_as_often_as_it_should(count: int) -> None:
    space = ActionSpace((Discrete(5), Discrete(4), Discrete(5)))
    assert _is_rate(_hits(Uniform(space, count), 4000, seed=count), 1 - (1 - 1 / 100) ** count)


@pytest.mark.parametrize(("num_proposal", "num_uniform"), [(1, 0), (5, 0), (20, 0), (3, 40)])
def test_a_proposal_finds_the_best_action_as_often_as_it_should(num_proposal: int, num_uniform: int) -> None:
    space = ActionSpace((Discrete(5), Discrete(4), Discrete(5)))
    search, params = _amortized(space, num_proposal, num_uniform)
    target = jnp.array([[3.0, 1.0, 4.0]])
    log_prob: Any = search.proposal.apply(params, _embedding(1), target, method="likelihood")
    p = float(np.exp(log_prob[0][0]))
    assert p != pytest.approx(0.01, rel=0.1)  # not the uniform one
    found = _run(search, params, _quadratic(target[0]), states=6000, seed=num_proposal)
    hits = np.all(np.asarray(found.action) == np.asarray(target), axis=1)
    assert _is_rate(hits, 1 - (1 - p) ** num_proposal * (1 - 1 / 100) ** num_uniform)


def test_from_proposal_looks_at_places() -> None:
    search, params = _amortized(SMALL, 6, 5)

    @jax.jit
    def share(wanted: Any) -> Any:
        """With a score that prefers the wanted place [B]: 6 of the proposal, 5 uniform ones, 1 that was known."""

        def score(candidates: Any) -> Any:
            return (jnp.arange(candidates.shape[1]) == wanted[:, None]).astype(jnp.float32)

        known = jnp.zeros((4, 1, 3))
        return jnp.mean(search.from_proposal(search(params, jax.random.key(0), _embedding(4), score, known)))

    assert share(jnp.array([0, 1, 4, 5])) == 1
    assert share(jnp.array([5, 6, 10, 11])) == 0.25
    assert share(jnp.array([6, 6, 10, 11])) == 0


def test_uniform_share_mutates_samples_of_the_proposal() -> None:
    space = ActionSpace((Discrete(12), Discrete(12)))
    certain = Proposal(space, (4,))
    seen: list[Any] = []

    def score(candidates: Any) -> Any:
        seen.append(np.asarray(candidates))
        return candidates[..., 0]

    search = Amortized(space, certain, num_proposal=2, num_uniform=3000, entropy_weight=0.0, uniform_share=0.25)
    params = jax.jit(search.init)(jax.random.key(3), _embedding(1))
    params["params"]["head"]["bias"] = params["params"]["head"]["bias"].at[:, 7].set(1000.0)
    search(params, jax.random.key(0), _embedding(1), score)
    assert np.all(seen[0][0, :2] == 7)
    mutated = seen[0][0, 2:] != 7
    # A drawn sub-action is another one with probability 11 / 12, each by itself.
    expected = 0.25 * 11 / 12
    np.testing.assert_allclose(mutated.mean(axis=0), expected, atol=4 * math.sqrt(expected * (1 - expected) / 3000))
    np.testing.assert_allclose(mutated.all(axis=1).mean(), expected**2, atol=4 * math.sqrt(expected**2 / 3000))


@pytest.mark.parametrize("name", ["uniform", "cross-entropy", "exact"])
def test_fixed_searches_learn_nothing(name: str) -> None:
    search, params = SEARCHES[name](SMALL)
    assert search.init(jax.random.key(0), _embedding(1)) == params == {}
    assert not search.from_proposal(best_of(jnp.zeros((4, 2, 3)), _quadratic(jnp.zeros(3)))).any()
    assert search.loss({}, _embedding(4), jnp.zeros((4, 3))) == (0, {})


def test_the_loss_of_the_proposal_teaches_it_to_find() -> None:
    search, params = _amortized(LARGE, 4, 0)
    best = jnp.tile(jnp.array([3.0, 1.0, 4.0]), (4, 1))

    def hits(params: Any) -> float:
        found = _run(search, params, _quadratic(best[0]), states=200)
        return float(np.mean(np.all(np.asarray(found.action) == np.asarray(best[0]), axis=1)))

    @jax.jit
    def step(params: Any) -> Any:
        gradient, metrics = jax.grad(search.loss, has_aux=True)(params, _embedding(4), best)
        return jax.tree.map(lambda p, g: p - 0.3 * g, params, gradient), metrics

    before = hits(params)
    entropies = []
    for _ in range(150):
        params, metrics = step(params)
        entropies.append(float(metrics["proposal_entropy"]))
    assert before < 0.1
    assert hits(params) > 0.95
    assert entropies[0] > 5 > 2 > entropies[-1] > 0
    # -log mu - 0.01 H
    loss = -metrics["proposal_log_prob"] - 0.01 * metrics["proposal_entropy"]
    np.testing.assert_allclose(metrics["proposal_loss"], loss, rtol=1e-5)


# The cross-entropy method.


def test_cross_entropy_beats_uniform_with_the_same_evaluations() -> None:
    target = jnp.array([0.31, -0.62, 0.05, 0.77])
    cem = CrossEntropy(BOX, samples=100, elites=10, iterations=3)
    ours = -np.asarray(_run(cem, {}, _quadratic(target), states=200).value)
    theirs = -np.asarray(_run(Uniform(BOX, 300), {}, _quadratic(target), states=200).value)
    assert np.mean(ours) < 0.35 * np.mean(theirs)
    assert np.mean(ours < theirs) > 0.85


def test_more_iterations_come_closer() -> None:
    target = jnp.array([0.31, -0.62, 0.05, 0.77])
    errors = []
    for iterations in (1, 4):
        cem = CrossEntropy(BOX, samples=64, elites=8, iterations=iterations)
        errors.append(-np.mean(_run(cem, {}, _quadratic(target), states=100).value))
    assert errors[1] < 0.1 * errors[0]


@pytest.mark.parametrize(
    ("space", "target", "error", "rate"),
    # Of 1,000 actions, 500 uniform samples would find the best one with probability 0.39.
    [(LARGE, [7, 2, 9], 0.0, 0.6), (HYBRID, [3, 0.3, -0.5], 0.01, 0.9), (SMALL, [2, 0.5, 1], 0.0, 0.9)],
    ids=["discrete", "hybrid", "small"],
)
def test_cross_entropy_on_choices(space: ActionSpace, target: Any, error: float, rate: float) -> None:
    cem = CrossEntropy(space, samples=100, elites=10, iterations=5)
    found = _run(cem, {}, _quadratic(jnp.array(target, jnp.float32)), states=50)
    action = np.asarray(found.action)
    choices = space.num_choices > 0
    assert np.mean(np.all(np.abs(action - target)[:, choices] < 1e-6, axis=1)) > rate
    assert -np.median(found.value) <= error + 1e-6
    nearest = np.asarray(space.from_index(space.to_index(found.action)))
    np.testing.assert_allclose(action[:, choices], nearest[:, choices], atol=1e-6)
    assert np.abs(action[:, ~choices]).max(initial=0) <= 1


@pytest.mark.parametrize("space", [BOX, LARGE, HYBRID], ids=["box", "discrete", "hybrid"])
def test_cross_entropy_is_never_worse_than_its_first_samples(space: ActionSpace) -> None:
    cem = CrossEntropy(space, samples=5, elites=4, iterations=3)
    rough = jnp.array([3.1, 7.7, 5.3, 1.9][: space.dimensions])  # a score that elites say nothing about
    seen: list[Any] = []

    def score(candidates: Any) -> Any:
        values = jnp.sin(40 * candidates @ rough)
        seen.append(values)
        return values

    found = cem({}, jax.random.key(0), _embedding(60), score)
    assert len(seen) == 3
    assert np.all(found.value >= jnp.max(seen[0], axis=1))
    np.testing.assert_array_equal(found.value, np.concatenate(seen, axis=1).max(axis=1))
    np.testing.assert_allclose(jnp.sin(40 * found.action @ rough), found.value, atol=1e-3)
