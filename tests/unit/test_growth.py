"""Networks that grow: the same Q and proposal as before, with twice the units, which then part."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import agents
from aql.actions import ActionSpace, Interval
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.envs.base import TimeStep
from aql.experience import Unroll
from aql.runtime import growth
from aql.runtime.learner import Learner

ENV = EnvSpec((3,), ActionSpace((Interval(-1, 1), Interval(-1, 1))))
B, T = 4, 2
SIZES: dict[str, Any] = {"critic_layers": (6, 5), "proposal_layers": (4, 3), "enumerate_small": False}
NAMES = ["aql", "d3pg", "impala"]


def _config(agent: str = "aql", **settings: Any) -> Config:
    return Config(agent=agent, batch_size=B, updates_per_call=2, unroll_length=T, **SIZES, **settings)


def _grown(config: Config) -> tuple[Any, Any]:
    """A learner's state, and what becomes of it."""
    state = agents.make(config, ENV).init(jax.random.key(0))
    like = jax.eval_shape(agents.make(growth.wider(config), ENV).init, jax.random.key(0))
    return state, growth.grow(state, like, jax.random.key(1))


def _now() -> TimeStep:
    observation = np.random.default_rng(0).normal(size=(B, 3)).astype(np.float32)
    one = np.ones(B, np.float32)
    return TimeStep(observation, one, one, first=one > 2, last=one > 2, mask=np.ones((B, 0), bool))


def _unrolls(agent: Any, params: Any, n: int) -> Unroll:
    rng = np.random.default_rng(2)
    decision, _ = agent.act(params, agent.init_actors(np.arange(B), B), jax.random.key(3), _now(), "explore")
    rows = np.arange(n) % B
    extras = {k: np.repeat(np.asarray(v)[rows][:, None], T + 1, axis=1) for k, v in decision.extras.items()}
    shape = (n, T + 1)
    return Unroll(
        observation=rng.normal(size=(*shape, 3)).astype(np.float32),
        action=np.repeat(np.asarray(decision.action)[rows][:, None], T + 1, axis=1),
        reward=rng.normal(size=shape).astype(np.float32),
        discount=np.ones(shape, np.float32),
        first=np.zeros(shape, bool),
        mask=np.ones((*shape, 0), bool),
        extras=extras,
    )


def test_layers_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_DIFFERENCE", 0.0)
    narrow = {
        "first": {"kernel": jnp.array([[1.0, 2.0]]), "bias": jnp.array([3.0, 4.0])},
        "last": jnp.array([[6.0], [8]]),
    }
    wide = {"first": {"kernel": jnp.zeros((1, 4)), "bias": jnp.zeros(4)}, "last": jnp.zeros((4, 1))}
    grown = growth.grow(narrow, wide, jax.random.key(0))
    np.testing.assert_array_equal(grown["first"]["kernel"], [[1, 2, 1, 2]])
    np.testing.assert_array_equal(grown["first"]["bias"], [3, 4, 3, 4])
    np.testing.assert_array_equal(grown["last"], [[3], [4], [3], [4]])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes_at_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_DIFFERENCE", 0.0)
    config = _config(name)
    agent = agents.make(config, ENV)
    state, grown = _grown(config)
    actors = agent.init_actors(np.arange(B), B)
    thoughts = []
    for learned in (state, grown):
        params = agent.acting_params(learned)
        decision, _ = agent.act(params, actors, jax.random.key(2), _now(), "greedy")
        thought = agent.explain(params, actors, jax.random.key(2), _now(), decision.action)
        thoughts.append((decision.action, thought))
    for before, after in zip(*map(jax.tree.leaves, thoughts), strict=True):
        np.testing.assert_allclose(before, after, atol=1e-5)


def test_copies_differ_a_little_and_alike() -> None:
    config = _config(target_ema=0.5, greedy_averages=2)
    state, grown = _grown(config)
    kernel = grown.params.network.critics[0]["params"]["state_tower"]["Dense_0"]["kernel"]  # [3, 12]
    ratio = np.asarray(kernel[:, 6:] / kernel[:, :6])
    assert 0.1 < np.abs(ratio - 1).max() < 0.2
    assert ratio.std() > 0.05
    # Targets and averages began as their network, and still are what it is.
    for follower in (grown.target, jax.tree.map(lambda leaf: leaf[1], grown.averages.networks)):
        jax.tree.map(np.testing.assert_array_equal, follower, grown.params.network)
    assert grown.params.statistics == state.params.statistics


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_grows_once_when_it_is_due_and_goes_on(name: str) -> None:
    config = _config(name, growth_updates=3)
    agent = agents.make(config, ENV)
    learner = Learner(agent, config)
    unrolls = _unrolls(agent, learner.params, 2 * B)
    sizes = []
    for _ in range(4):  # each time two updates
        learner.add(unrolls)
        learner.learn()
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(learner.params)))
    assert sizes[0] == sizes[1] < sizes[2] == sizes[3]
    wide = Learner(agents.make(growth.wider(config), ENV), growth.wider(config))
    assert jax.tree.map(jnp.shape, learner.params) == jax.tree.map(jnp.shape, wide.params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner.params))
    # And one that takes over its state is as large.
    heir = Learner(agent, config)
    heir.set_state(*learner.get_state())
    jax.tree.map(np.testing.assert_array_equal, heir.params, learner.params)


def test_copies_part() -> None:
    config = _config(growth_updates=1)
    agent = agents.make(config, ENV)
    learner = Learner(agent, config)
    unrolls = _unrolls(agent, learner.params, 2 * B)
    for _ in range(100):
        learner.add(unrolls)
        learner.learn()
    kernel = np.asarray(learner.params.network.critics[0]["params"]["state_tower"]["Dense_0"]["kernel"])
    similar = [np.corrcoef(kernel[:, i], kernel[:, i + 6])[0, 1] for i in range(6)]
    assert min(similar) < 0.95
