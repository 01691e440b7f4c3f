"""A counting environment and a counting policy: every number in an unroll says when and where it belongs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import agents
from aql.actions import ActionSpace, Discrete
from aql.agents.base import Decision, EnvSpec
from aql.config import Config
from aql.envs import toys
from aql.experience import Unroll
from aql.runtime.actor import Actor

ACTORS = 3
EPISODE = 7  # transitions; so steps 0..7, and the next episode begins 8 steps after the last one


class CountingAgent:
    """Does, and stores as a*, what tells the observation and the state that it saw."""

    summary = "counts"

    def __init__(self, space: ActionSpace) -> None:
        self.space = space

    def init(self, key: Any) -> Any:
        return {}

    def acting_params(self, state: Any) -> Any:
        return state

    def init_actors(self, index: Any, total: int) -> Any:
        return jnp.zeros(len(index), jnp.float32)

    def act(self, params: Any, actor_state: Any, key: Any, now: Any, mode: Any) -> Any:
        step, _, place = now.observation.T
        action = (step % 2)[:, None]
        extras = {
            "best_action": (10 * step + place)[:, None],
            "memory": actor_state,  # how many decisions this actor made before
            "first_seen": now.first,
            "params": jnp.full(len(step), params),
            "random": jnp.full(len(step), mode == "random"),
        }
        return Decision(action.astype(jnp.float32), extras), actor_state + 1

    def explain(self, params: Any, actor_state: Any, key: Any, now: Any, action: Any) -> Any:
        raise NotImplementedError

    def update(self, state: Any, key: Any, unrolls: Any) -> Any:
        raise NotImplementedError


def _config(**settings: Any) -> Config:
    return Config(actors=ACTORS, random_steps=0, **settings)


def _collect(decisions: int, first_actor: int = 0, **settings: Any) -> tuple[Actor, list[Unroll | None]]:
    env = toys.Counting(ACTORS, length=EPISODE)
    actor = Actor(CountingAgent(env.action_space), env, _config(**settings), first_actor)
    received = []
    for t in range(decisions):
        actor.send(float(t))
        received.append(actor.receive())
    return actor, received


def _check_row(unrolls: Unroll, row: int, actor: int, start: int) -> None:
    """Row `row` holds the decisions start, start+1, ... of the actor, every field of them."""
    t = start + np.arange(unrolls.reward.shape[1])
    step, episode = t % (EPISODE + 1), t // (EPISODE + 1)
    np.testing.assert_array_equal(unrolls.observation[row], np.stack([step, episode, 0 * t + actor], axis=1))
    np.testing.assert_array_equal(unrolls.first[row], step == 0)
    np.testing.assert_array_equal(unrolls.reward[row], step)  # 0 at a first step, whatever was done before
    np.testing.assert_array_equal(unrolls.discount[row], 1)  # a time limit is no termination
    np.testing.assert_array_equal(unrolls.action[row, :, 0], step % 2)
    np.testing.assert_array_equal(unrolls.extras["best_action"][row, :, 0], 10 * step + actor)
    np.testing.assert_array_equal(unrolls.extras["memory"][row], t)
    np.testing.assert_array_equal(unrolls.extras["first_seen"][row], step == 0)
    np.testing.assert_array_equal(unrolls.extras["params"][row], t)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 13])
def test_new_unrolls_overlap_in_one_step(length: int) -> None:
    _, received = _collect(60, unroll_length=length, replayed_per_new=0)
    sent = [(t, unrolls) for t, unrolls in enumerate(received) if unrolls is not None]
    # The first needs length + 1 decisions, each later one `length` more.
    assert [t for t, _ in sent] == list(range(length, 60, length))
    for t, unrolls in sent:
        assert unrolls.reward.shape == (ACTORS, length + 1)
        for actor in range(ACTORS):
            _check_row(unrolls, actor, actor, start=t - length)
    # Together they hold every decision once, but for the shared ones.
    steps = [int(m) for _, unrolls in sent for m in unrolls.extras["memory"][0][:-1]]
    assert steps == list(range(len(steps)))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("length", [1, 4])
def test_replayed_unrolls_are_of_the_same_actor(length: int, aligned: bool) -> None:
    replayed = 5
    _, received = _collect(
        50, unroll_length=length, replayed_per_new=replayed, replay_capacity=21, aligned_replay=aligned
    )
    starts = []
    for t, unrolls in enumerate(received):
        if unrolls is None:
            continue
        actors = unrolls.observation[:, 0, 2].astype(int)  # rows come in random order
        assert np.bincount(actors).tolist() == [1 + replayed] * ACTORS
        memory = unrolls.extras["memory"]
        for row, actor in enumerate(actors):
            start = int(memory[row, 0])
            _check_row(unrolls, row, actor, start)
            assert max(0, t + 1 - 21) <= start <= t - length
            starts.append(start)
        for actor in range(ACTORS):  # the new one is among them
            assert t - length in memory[actors == actor, 0]
    assert len(set(starts)) > 5
    if aligned:
        assert all(start % length == 0 for start in starts)


def test_random_steps_send_nothing_but_are_kept() -> None:
    env = toys.Counting(ACTORS, length=EPISODE)
    config = Config(actors=ACTORS, random_steps=30, unroll_length=2, replayed_per_new=20)
    actor = Actor(CountingAgent(env.action_space), env, config)
    received = []
    for t in range(30):
        actor.send(float(t))
        received.append(actor.receive())
    # 30 actor steps are 10 decisions: 0..9 are random.
    assert all(unrolls is None for unrolls in received[:10])
    first = next(unrolls for unrolls in received if unrolls is not None)
    assert int(first.extras["memory"].max()) == 10
    np.testing.assert_array_equal(first.extras["random"], first.extras["memory"] < 10)
    assert first.extras["random"].mean() > 0.5


def test_returns_of_finished_episodes() -> None:
    actor, _ = _collect(20)
    # Steps 1..7 earn 28, twice in 20 decisions, in each of 3 environments.
    assert actor.finished_returns == [28.0] * 6
    assert actor.steps == 60


def test_a_restart_begins_an_episode_and_is_not_a_transition() -> None:
    env = toys.Counting(ACTORS, length=EPISODE)
    actor = Actor(CountingAgent(env.action_space), env, _config(unroll_length=1, replayed_per_new=0))
    rows = []
    for t in range(12):
        actor.send(float(t))
        unrolls = actor.receive()
        rows.append(unrolls)
        if t == 4:
            actor.get_state()
            actor.restart()
    after = rows[5]
    assert after is not None
    np.testing.assert_array_equal(after.observation[0, :, 0], [4, 0])  # cut after step 5 was seen but not decided in
    np.testing.assert_array_equal(after.first[0], [False, True])
    assert actor.finished_returns == [28.0] * ACTORS  # the new episode's 1 + ... + 7; the one that was cut is no return


# The learner's side: what the update does at the seams.

OBSERVATION = (2,)
SETTINGS: dict[str, Any] = {
    "critic_layers": (8,),
    "num_critics": 1,
    "enumerate_small": False,
    "fresh_search": False,
    "normalise_observations": False,
    "gamma": 0.9,
    "lambda_": 0.8,
    "target_ema": 1.0,
}


@functools.cache
def _q_learning(prediction_weight: float = 0, trace_tolerance: float = 0) -> tuple[Any, Any, Any]:
    config = Config(agent="exact", prediction_weight=prediction_weight, trace_tolerance=trace_tolerance, **SETTINGS)
    agent = agents.make(config, EnvSpec(OBSERVATION, ActionSpace((Discrete(3),))))
    return agent, jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)


def _unrolls(first: list[bool], discount: list[float] | None = None) -> Unroll:
    rng = np.random.default_rng(0)
    shape = (2, len(first))
    return Unroll(
        observation=rng.normal(size=(*shape, 2)).astype(np.float32),
        action=rng.integers(0, 3, (*shape, 1)).astype(np.float32),
        reward=rng.normal(size=shape).astype(np.float32),
        discount=np.broadcast_to(np.array(discount or [1] * len(first), np.float32), shape).copy(),
        first=np.broadcast_to(first, shape).copy(),
        mask=np.ones((*shape, 0), bool),
        extras={
            "best_action": rng.integers(0, 3, (*shape, 1)).astype(np.float32),
            "from_proposal": np.zeros(shape, bool),
        },
    )


def _updated(unrolls: Unroll, prediction_weight: float = 0, trace_tolerance: float = 0) -> Any:
    _, state, update = _q_learning(prediction_weight, trace_tolerance)
    return update(state, jax.random.key(1), unrolls)


def _same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one[0]), jax.tree.leaves(other[0]), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs) and bool(one[1]["critic_loss"] == other[1]["critic_loss"])


def _with(unrolls: Unroll, field: str, t: int, value: float) -> Unroll:
    changed = getattr(unrolls, field).copy()
    changed[:, t] = value
    return unrolls._replace(**{field: changed})


@pytest.mark.parametrize("settings", [(0, 0), (1, 0), (0, 1)], ids=["plain", "predictions", "traces"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_nothing_is_learned_across_a_reset(at: int, settings: tuple[float, float]) -> None:
    def updated(unrolls: Unroll) -> Any:
        return _updated(unrolls, *settings)

    unrolls = _unrolls([t == at for t in range(5)])
    plain = updated(unrolls)
    # The pair (at - 1, at) is no transition: neither its reward and discount nor the action before them count.
    assert _same(plain, updated(_with(unrolls, "reward", at, 1e4)))
    assert _same(plain, updated(_with(unrolls, "discount", at, 0)))
    assert _same(plain, updated(_with(unrolls, "action", at - 1, 2 - unrolls.action[0, at - 1, 0])))
    if at == 4:  # nothing follows it that would begin there
        assert _same(plain, updated(_with(unrolls, "observation", at, 50)))
    # The test can fail: the same garbage one step away does count.
    for t in range(1, 5):
        if t != at:
            assert not _same(plain, updated(_with(unrolls, "reward", t, 1e4))), t
            assert not _same(plain, updated(_with(unrolls, "observation", t, 50))), t


def test_predictions_in_numbers() -> None:
    """The error that is reported is that of what the critic says about real changes of the observation."""
    agent, state, _ = _q_learning(1)
    unrolls = _unrolls([False, False, False, True, False])
    (critic,) = state.params.network.critics
    wrong, size = 0.0, 0.0
    for row in range(2):
        for t in (1, 2, 4):  # to 3 is no transition
            before, after = unrolls.observation[row, t - 1], unrolls.observation[row, t]
            happened = np.append(after - before, unrolls.reward[row, t])
            half = agent._critic.apply(critic, jnp.asarray(before), method="state")
            outputs = agent._critic.apply(critic, half, jnp.asarray(unrolls.action[row, t - 1]), method="outputs")
            wrong += np.sum(np.square(happened - outputs[1:]))
            size += np.sum(np.square(happened))
    np.testing.assert_allclose(_updated(unrolls, 1)[1]["prediction_error"], wrong / size, rtol=1e-4)


def test_predictions_are_learned_beside_q() -> None:
    _, state, update = _q_learning(1)
    unrolls = _unrolls([False] * 5)
    _, before = update(state, jax.random.key(1), unrolls)
    for _ in range(500):
        state, after = update(state, jax.random.key(1), unrolls)
    # What follows here is noise, which a few units can learn by heart in part only.
    assert after["prediction_error"] < 0.75 * before["prediction_error"]
    assert after["critic_loss"] < 0.75 * before["critic_loss"]


def test_rewards_after_a_reset_do_not_reach_back() -> None:
    # Step 2 is a first one: what is earned from 3 on belongs to another episode, lambda or not.
    unrolls = _unrolls([False, False, True, False, False])
    poisoned = _with(_with(unrolls, "reward", 3, 1e3), "reward", 4, 1e3)

    def gradient_of_the_first_transition(unrolls: Unroll) -> Any:
        # The rows after the reset are made to be no transitions either, so that only (0, 1) is learned.
        return _updated(unrolls._replace(first=unrolls.first | (np.arange(5) > 2)))

    assert _same(gradient_of_the_first_transition(unrolls), gradient_of_the_first_transition(poisoned))


def test_the_loss_in_numbers() -> None:
    """One critic, stored a*: the loss is that of targets computed here, in plain Python."""
    agent, state, _ = _q_learning()
    unrolls = _unrolls([False, False, False, True, False], discount=[1, 1, 1, 1, 0])
    (critic,) = state.params.network.critics

    def q(observation: Any, action: Any) -> float:
        return float(agent._critic.apply(critic, jnp.asarray(observation), jnp.asarray([action])))

    errors = []
    for row in range(2):
        v = [q(unrolls.observation[row, t], unrolls.extras["best_action"][row, t, 0]) for t in range(5)]
        r = unrolls.reward[row]
        target_2 = r[2] + 0.9 * v[2]  # to 2, the last step of its episode: bootstraps there, no lambda
        target_1 = r[1] + 0.9 * (0.2 * v[1] + 0.8 * target_2)
        target_4 = r[4]  # to 4: terminated
        for t, target in ((1, target_1), (2, target_2), (4, target_4)):
            errors.append(target - q(unrolls.observation[row, t - 1], unrolls.action[row, t - 1, 0]))
    expected = 0.5 * np.mean(np.square(errors))
    np.testing.assert_allclose(_updated(unrolls)[1]["critic_loss"], expected, rtol=1e-4)
