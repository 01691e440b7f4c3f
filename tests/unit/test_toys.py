"""The toys' answers are what they claim to be."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from aql import envs
from aql.envs import toys
from aql.envs.base import TimeStep

NAMES = list(toys.TOYS)
BANDITS = [name for name in NAMES if "bandit" in name]


def _step(env: Any, action: Any) -> TimeStep:
    env.send(np.broadcast_to(np.asarray(action, np.float32), (env.num_envs, env.action_space.dimensions)))
    return env.receive()


def _random(env: Any, rng: Any) -> Any:
    key = jax.random.key(int(rng.integers(2**31)))
    return np.asarray(env.action_space.sample(key, (env.num_envs,)))


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: Any) -> None:
    env = envs.make(name, 3)

    def stream(seed: Any) -> Any:
        rng = np.random.default_rng(0)
        return [env.reset(seed), *(_step(env, _random(env, rng)) for _ in range(25))]

    once, copies = stream(1), stream(1)
    for a, b in zip(once, copies, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    for before, after in itertools.pairwise(once):
        np.testing.assert_array_equal(after.first, before.last)
        np.testing.assert_array_equal(after.reward[after.first], 0)
        np.testing.assert_array_equal(after.discount[after.first], 1)
        assert np.all(after.last[after.discount == 0])
    for step in once:
        assert step.observation.shape == (3, *env.observations.shape)
        assert [x.dtype for x in step] == [env.observations.dtype, np.float32, np.float32, bool, bool, bool]
    if name in BANDITS:
        assert np.any(once[0].observation != stream(2)[0].observation)


def test_counting_in_numbers() -> None:
    env = toys.Counting(2, length=2)
    first = env.reset(0)
    np.testing.assert_array_equal(first.observation, [[0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(first.first, [True, True])
    steps = [_step(env, [0]) for _ in range(5)]
    assert [s.observation[1].tolist() for s in steps] == [
        [1, 0, 1],
        [2, 0, 1],
        [0, 1, 1],
        [1, 1, 1],
        [2, 1, 1],
    ]
    assert [s.reward[0] for s in steps] == [1, 2, 0, 1, 2]
    assert [bool(s.last[0]) for s in steps] == [False, True, False, False, True]
    assert [bool(s.first[0]) for s in steps] == [False, False, True, False, False]
    assert all(s.discount[0] == 1 for s in steps)
    np.testing.assert_array_equal(env.reset(0).observation, [[0, 0, 0], [0, 0, 1]])


def test_counting_is_seven_long() -> None:
    env = envs.make("toy/counting", 1)
    env.reset(0)
    assert [bool(_step(env, [1]).last[0]) for _ in range(8)] == [False] * 6 + [True, False]


@pytest.mark.parametrize("name", BANDITS)
def test_bandit_optimum(name: Any) -> None:
    env = envs.make(name, 512)
    assert isinstance(env, toys.Bandit)
    context = env.reset(0).observation
    step = _step(env, env.optimal_action(context))
    np.testing.assert_allclose(step.reward, env.optimal_value, atol=1e-6)
    assert step.last.all()
    assert not step.discount.any()
    # Nothing beats the optimum, and a random policy is far from it.
    rng = np.random.default_rng(0)
    random = np.stack([env.expected_reward(context, _random(env, rng)) for _ in range(50)])
    assert random.max() <= 1
    assert random.min() >= 0
    assert random.mean() < 0.3
    # The context decides: the best action of one context is poor in another.
    assert env.expected_reward(context, env.optimal_action(np.roll(context, 1, axis=0))).mean() < 0.5


def test_bandit_optimum_by_brute_force() -> None:
    env = envs.make("toy/bandit-discrete", 20)
    assert isinstance(env, toys.Bandit)
    context = env.reset(3).observation
    every = env.action_space.enumerate()
    assert env.action_space.size == 4**3
    reward = np.stack([env.expected_reward(context, np.broadcast_to(a, (20, 3))) for a in every])
    np.testing.assert_array_equal(every[reward.argmax(axis=0)], env.optimal_action(context))
    assert np.all(np.sort(reward, axis=0)[-2] < 0.6)


def test_bandit_subactions_interact() -> None:
    """The gain of one sub-action depends on the other: no sum of marginals explains the reward."""
    env = envs.make("toy/bandit-continuous", 1)
    assert isinstance(env, toys.Bandit)
    context = env.reset(0).observation
    best = env.optimal_action(context)
    off = best + np.array([[0.3, 0.0]], np.float32)
    both = best + np.array([[0.3, 0.3]], np.float32)
    other = best + np.array([[0.0, 0.3]], np.float32)
    gain_alone = env.expected_reward(context, other) - env.expected_reward(context, both)
    gain_together = env.expected_reward(context, best) - env.expected_reward(context, off)
    assert gain_together > 1.3 * gain_alone


def test_million_has_a_million_actions() -> None:
    assert envs.make("toy/bandit-million", 1).action_space.size == 10**6


def test_chain_q_in_numbers() -> None:
    q = toys.Chain(1, length=4, bait=0.01).optimal_q(0.5)
    expected = np.array([[0.01 + 0.125, 0.25], [0.125, 0.5], [0.25, 1], [0, 0]])
    np.testing.assert_allclose(q, expected, atol=1e-10)
    lazy = toys.Chain(1, length=4, bait=1.0).optimal_q(0.5)
    np.testing.assert_allclose(lazy[0], [2, 0.5], atol=1e-10)


def test_chain_walk() -> None:
    env = toys.Chain(2, length=3)
    np.testing.assert_array_equal(env.reset(0).observation, [[1, 0, 0]] * 2)
    steps = [_step(env, a) for a in ([0], [1], [0], [1], [1], [0])]
    assert [int(s.observation[0].argmax()) for s in steps] == [0, 1, 0, 1, 2, 0]
    np.testing.assert_allclose([s.reward[0] for s in steps], [0.01, 0, 0, 0, 1, 0])
    assert [s.discount[0] for s in steps] == [1, 1, 1, 1, 0, 1]
    assert [bool(s.last[0]) for s in steps] == [False] * 4 + [True, False]


def test_chain_has_a_time_limit() -> None:
    env = toys.Chain(1, limit=3)
    env.reset(0)
    steps = [_step(env, [0]) for _ in range(4)]
    assert [bool(s.last[0]) for s in steps] == [False, False, True, False]
    assert steps[2].discount[0] == 1


@pytest.mark.parametrize(("name", "discount"), [("toy/time-limit", 1), ("toy/termination", 0)])
def test_two_ways_to_end(name: Any, discount: Any) -> None:
    env = envs.make(name, 1)
    env.reset(0)
    steps = [_step(env, [0]) for _ in range(11)]
    assert [s.reward[0] for s in steps] == [1] * 10 + [0]
    assert [bool(s.last[0]) for s in steps] == [False] * 9 + [True, False]
    assert [s.discount[0] for s in steps] == [1] * 9 + [discount, 1]


def test_termination_value() -> None:
    env = toys.Termination(1, length=4)
    value = env.optimal_value(np.array([[0.0], [0.5], [1.0]]), 0.5)
    np.testing.assert_allclose(value, [1.875, 1.5, 0])
