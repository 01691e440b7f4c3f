"""Workers without Ray: who gets which actors, random steps, seeds, and environments that return nonsense."""

import sys
import types
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from aql import agents, envs
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.envs.base import TimeStep
from aql.errors import UserError
from aql.presets import preset
from aql.runtime.actor import Actor
from aql.runtime.worker import Delivery, Share, Worker, decisions_per_call, share_out

TINY: dict[str, Any] = {
    "env": "toy/counting",
    "agent": "uniform",
    "actors": 4,
    "workers": 2,
    "random_steps": 24,
    "critic_layers": (8,),
    "proposal_layers": (8,),
    "num_critics": 1,
    "unroll_length": 2,
    "replayed_per_new": 1,
    "replay_capacity": 100,
    "batch_size": 8,
    "updates_per_call": 2,
}


def _params(config: Config) -> Any:
    env = envs.make(config.env, 1)
    agent = agents.make(config, EnvSpec.of(env))
    return jax.tree.map(np.asarray, agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0))))


def test_actors_are_shared_out_as_equally_as_possible() -> None:
    assert share_out(8, 2) == [Share(0, 4), Share(4, 4)]
    assert share_out(7, 3) == [Share(0, 2), Share(2, 2), Share(4, 3)]
    assert share_out(3, 3) == [Share(0, 1), Share(1, 1), Share(2, 1)]
    for workers in range(1, 101):
        shares = share_out(100, workers)
        assert len(shares) == workers
        assert [s.first for s in shares] == [0, *np.cumsum([s.size for s in shares])[:-1]]
        assert sum(s.size for s in shares) == 100
        assert max(s.size for s in shares) - min(s.size for s in shares) <= 1


def test_one_call_of_each_worker_feeds_one_call_of_the_learner() -> None:
    # fast: 4 updates of 128 unrolls, 32 for a step of an actor: 16 steps, so 2 decisions of 4 actors in each worker.
    assert decisions_per_call(preset("fast", env="toy/chain", workers=2), Share(0, 4)) == 2
    assert decisions_per_call(preset("fast", env="toy/chain", workers=1), Share(0, 8)) == 2
    assert decisions_per_call(preset("fast", env="toy/chain", workers=8), Share(0, 1)) == 2
    # control tasks: 4 actors bring 256 unrolls, of which 128 would do: one unroll of 8 steps is the least there is.
    assert decisions_per_call(preset("fast", workers=2), Share(0, 4)) == 8
    # paper: 12 actors bring 36 unrolls, of which 4 would do: one unroll of 30 steps is the least that there is.
    assert decisions_per_call(preset("paper", workers=8), Share(0, 12)) == 30
    assert decisions_per_call(preset("paper", workers=1, actors=2), Share(0, 2)) == 150


def _deliveries(birth: int, calls: int, version: int = 0, **settings: Any) -> list[Delivery]:
    config = Config(**(TINY | settings))
    worker, params = Worker(config, Share(2, 2), birth), _params(config)
    return [worker.act(params, version) for _ in range(calls)]


def test_random_steps_are_those_of_all_actors_together() -> None:
    """24 of four actors: six of each, whoever hosts them."""
    # A call is 2 * round(16 / 2 / 4) = 4 decisions. Decision 6 is the last random one; 7 completes an unroll.
    first, second, third = _deliveries(0, 3)
    assert first.unrolls is None
    assert first.steps == 8
    assert second.unrolls is not None
    assert len(second.unrolls.reward) == 2 * 2  # of two actors, one new and one replayed
    assert third.unrolls is not None
    assert len(third.unrolls.reward) == 2 * 4


def test_a_worker_that_begins_with_a_trained_agent_does_not_act_at_random() -> None:
    """But its replay fills before anything is learned from it."""
    greedy = {"env": "toy/chain", "epsilon_low": 0.0, "epsilon_high": 0.0, "random_steps": 4 * 1000}

    def choices(version: int) -> set[tuple[float, ...]]:
        config = Config(**(TINY | greedy))
        worker, params = Worker(config, Share(0, 4), 0), _params(config)
        for _ in range(5):
            assert worker.act(params, version).unrolls is None
        ring = worker._actor._replay._ring
        assert ring is not None
        return {tuple(actions) for actions in ring.action[:20, :, 0].T}

    # All four actors begin in the same state of the same chain: a greedy policy does the same in all of them.
    assert len(choices(version=1)) == 1
    assert len(choices(version=0)) == 4


def test_workers_born_later_see_other_episodes() -> None:
    def contexts(birth: int) -> np.ndarray:
        unrolls = _deliveries(birth, 1, env="toy/bandit-discrete", random_steps=0)[0].unrolls
        assert unrolls is not None
        return np.asarray(unrolls.observation)

    np.testing.assert_array_equal(contexts(0), contexts(0))
    assert not np.isin(contexts(1), contexts(0)).any()


class Mortal(gymnasium.Env):
    """Counts each of its steps as a process that died."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    restarts = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.restarts += 1
        return np.zeros(3, np.float32), 0.0, False, False, {}


def test_what_died_in_the_environments_is_delivered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [delivery.env_restarts for delivery in _deliveries(0, 2)] == [None, None]
    module = types.ModuleType("mortal")
    module.Mortal = Mortal  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mortal", module)
    deliveries = _deliveries(0, 3, env="mortal:Mortal")
    assert [delivery.env_restarts for delivery in deliveries] == [delivery.steps for delivery in deliveries]


def test_actors_keep_their_place_among_all() -> None:
    """The curiosity of an actor depends on its number, not on its worker."""
    config = Config(**TINY)
    env = envs.make(config.env, 1)
    agent = agents.make(config, EnvSpec.of(env))
    whole = jax.tree.leaves(agent.init_actors(np.arange(4), 4))
    worker = Worker(config, Share(2, 2), 0)
    part = jax.tree.leaves(worker._actor._actor_state)
    for ours, theirs in zip(part, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs[2:])
    assert any(len(np.unique(leaf)) == 4 for leaf in whole)


@pytest.mark.parametrize("name", ["observation", "reward", "discount"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(name: str, value: float) -> None:
    class Nonsense:
        def __init__(self) -> None:
            self._env = envs.make("toy/chain", 3)

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self._env, attribute)

        def receive(self) -> TimeStep:
            now = self._env.receive()
            getattr(now, name)[1] = value
            return now

    # As an actor has it, in a worker or in the process of the learner.
    config = preset("fast", env="toy/chain", actors=3)
    env: Any = Nonsense()
    agent = agents.make(config, EnvSpec.of(env))
    actor = Actor(agent, env, config)
    actor.send(agent.acting_params(agent.init(jax.random.key(0))))
    with pytest.raises(UserError, match=f"returned {value} in its {name}"):
        actor.receive()
