"""What is d3pg's and impala's alone: noise, likelihoods, who learns from what, and nothing across a reset."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import agents
from aql.actions import ActionSpace, Discrete, Interval
from aql.agents.base import EnvSpec
from aql.agents.d3pg import ActorMemory
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.experience import Unroll
from aql.networks import apply
from aql.runtime.actor import jit_act

CONTINUOUS = ActionSpace((Interval(-2, 3), Interval(-1, 1)))
HYBRID = ActionSpace((Discrete(3), Interval(-1, 1), Interval(0, 5)))
SPACES = {"d3pg": CONTINUOUS, "impala": HYBRID, "impala-gaussian": HYBRID}
OBSERVATION = (2,)
SMALL: dict[str, Any] = {
    "critic_layers": (8,),
    "proposal_layers": (8,),
    "num_critics": 1,
    "normalise_observations": False,
    "target_ema": 1.0,
    "gamma": 0.9,
}


def _make(name: str, **settings: Any) -> Any:
    return agents.make(Config(agent=name, **(SMALL | settings)), EnvSpec(OBSERVATION, SPACES[name]))


@functools.cache
def _ready(name: str, **settings: Any) -> tuple[Any, Any, Any]:
    """The agent, its first state, and its update."""
    agent = _make(name, **settings)
    return agent, jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)


@functools.cache
def _jit_act(name: str, **settings: Any) -> Any:
    return jit_act(_ready(name, **settings)[0])


def _act(
    name: str,
    count: int,
    mode: str,
    actor_state: Any = None,
    first: Any = None,
    key: int = 0,
    mask: Any = None,
    **settings: Any,
) -> Any:
    """Decisions in `count` states, and what the actors keep."""
    agent, state, _ = _ready(name, **settings)
    actor_state = agent.init_actors(np.arange(count), count) if actor_state is None else actor_state
    first = np.zeros(count, bool) if first is None else first
    observation = np.random.default_rng(0).normal(size=(count, *OBSERVATION)).astype(np.float32)
    params = agent.acting_params(state)
    zeros = np.zeros(count, np.float32)
    now = TimeStep(observation, zeros, zeros, first, np.zeros(count, bool), no_masks(count) if mask is None else mask)
    return _jit_act(name, **settings)(params, actor_state, jax.random.key(key), np.uint32(0), now, mode=mode)


def _unrolls(name: str, first: list[bool], discount: list[float] | None = None, **settings: Any) -> Unroll:
    """Two unrolls of actions that the agent itself might have drawn, with the likelihoods of another policy."""
    agent, _, _ = _ready(name, **settings)
    rng = np.random.default_rng(0)
    shape = (2, len(first))
    extras = {} if name == "d3pg" else {"log_prob": rng.uniform(-3, -1, shape).astype(np.float32)}
    return Unroll(
        observation=rng.normal(size=(*shape, *OBSERVATION)).astype(np.float32),
        action=np.array(agent.space.sample(jax.random.key(1), shape)),
        reward=rng.normal(size=shape).astype(np.float32),
        discount=np.broadcast_to(np.array(discount or [1] * len(first), np.float32), shape).copy(),
        first=np.broadcast_to(first, shape).copy(),
        mask=np.ones((*shape, 0), bool),
        extras=extras,
    )


def _updated(name: str, unrolls: Unroll, **settings: Any) -> Any:
    _, state, update = _ready(name, **settings)
    return update(state, jax.random.key(1), unrolls)


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


# Nothing across a reset.


def _with(unrolls: Unroll, field: str, t: int, value: Any) -> Unroll:
    changed = getattr(unrolls, field).copy()
    changed[:, t] = value
    return unrolls._replace(**{field: changed})


@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("name", ["d3pg", "impala"])
def test_nothing_is_learned_across_a_reset(name: str, at: int) -> None:
    unrolls = _unrolls(name, [t == at for t in range(5)])
    plain = _updated(name, unrolls)[0]
    # The pair (at - 1, at) is no transition: neither its reward and discount nor the action before them count.
    assert _same(plain, _updated(name, _with(unrolls, "reward", at, 1e4))[0])
    assert _same(plain, _updated(name, _with(unrolls, "discount", at, 0))[0])
    assert _same(plain, _updated(name, _with(unrolls, "action", at - 1, 0))[0])
    # The test can fail: the same garbage one step away does count.
    for t in range(1, 5):
        if t != at:
            assert not _same(plain, _updated(name, _with(unrolls, "reward", t, 1e4))[0]), t
            assert not _same(plain, _updated(name, _with(unrolls, "action", t - 1, 0))[0]), t


@pytest.mark.parametrize("name", ["d3pg", "impala"])
def test_rewards_after_a_reset_do_not_reach_back(name: str) -> None:
    unrolls = _unrolls(name, [False, False, True, True, True])  # only (0, 1) is a transition
    poisoned = _with(_with(unrolls, "reward", 3, 1e3), "reward", 4, 1e3)
    assert _same(_updated(name, unrolls)[0], _updated(name, poisoned)[0])


# d3pg.


def _noisy(noise: Any) -> ActorMemory:
    """Actors with this noise, and nothing else to remember."""
    return ActorMemory(noise, jnp.zeros((len(noise), 0)))


def test_noise_is_an_ornstein_uhlenbeck_process() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 4, 2)).astype(np.float32)
    first = np.array([False, True, False, True])
    after_one, after_other = (_act("d3pg", 4, "explore", _noisy(state), first)[1].noise for state in (one, other))
    # Of what was there, 0.85 stays; a new episode begins without it. The rest is the same for the same key.
    np.testing.assert_allclose(after_one - after_other, 0.85 * (one - other) * ~first[:, None], rtol=1e-4, atol=1e-6)
    # From 0, one step is N(0, 0.2^2), in every sub-action and actor by itself.
    noise = _act("d3pg", 20_000, "explore")[1].noise
    np.testing.assert_allclose(np.std(noise, axis=0), 0.2, rtol=0.03)
    np.testing.assert_allclose(np.mean(noise, axis=0), 0, atol=0.006)
    assert abs(np.corrcoef(np.asarray(noise).T)[0, 1]) < 0.03
    # Many steps later: 0.2 / sqrt(1 - 0.85^2).
    for key in range(30):  # 0.85^30 = 0.008
        noise = _act("d3pg", 20_000, "explore", _noisy(noise), key=key)[1].noise
    np.testing.assert_allclose(np.std(noise, axis=0), 0.3797, rtol=0.03)


def test_noise_is_added_when_exploring_only() -> None:
    state = _noisy(0.8 * np.ones((500, 2), np.float32))
    (greedy, _), (explored, after), (again, _) = (
        _act("d3pg", 500, mode, state) for mode in ("greedy", "explore", "greedy")
    )
    np.testing.assert_array_equal(greedy.action, again.action)
    np.testing.assert_allclose(explored.action, np.clip(greedy.action + after.noise, -1, 1), rtol=1e-5, atol=1e-6)
    assert np.mean(np.asarray(explored.action) == 1) > 0.02  # some were clipped
    quiet, _ = _act("d3pg", 500, "explore", noise_sigma=0.0)
    np.testing.assert_array_equal(quiet.action, greedy.action)


def test_the_policy_begins_near_the_middle() -> None:
    decision, _ = _act("d3pg", 100, "greedy")
    assert 0 < np.abs(decision.action).max() < 0.2


def test_the_policy_climbs_the_critic() -> None:
    agent, state, _ = _ready("d3pg", learning_rate=1e-9, proposal_learning_rate=1e-2)
    unrolls = _unrolls("d3pg", [False] * 5)

    def value(state: Any) -> float:
        embedding = jnp.asarray(unrolls.observation[:, :-1])
        action = apply(agent._policy, state.params.policy, embedding)
        return float(jnp.mean(apply(agent._critic, state.params.critics[0], embedding, action)))

    values = [value(state)]
    for _ in range(20):
        state, _ = _ready("d3pg", learning_rate=1e-9, proposal_learning_rate=1e-2)[2](state, jax.random.key(0), unrolls)
        values.append(value(state))
    assert np.all(np.diff(values) > 0)
    assert values[-1] - values[0] > 0.01


def test_critics_and_policy_do_not_touch_each_other() -> None:
    unrolls = _unrolls("d3pg", [False] * 5)
    plain = _updated("d3pg", unrolls)[0]
    other = _updated("d3pg", unrolls, proposal_learning_rate=0.1)[0]
    assert _same(plain.params.critics, other.params.critics)
    assert not _same(plain.params.policy, other.params.policy)
    other = _updated("d3pg", unrolls._replace(reward=100 * unrolls.reward))[0]
    assert _same(plain.params.policy, other.params.policy)
    assert not _same(plain.params.critics, other.params.critics)


def test_the_targets_of_d3pg_in_numbers() -> None:
    """One critic, one transition to a termination and one to a state that goes on."""
    agent, state, _ = _ready("d3pg")
    unrolls = _unrolls("d3pg", [False, False], discount=[1, 1])
    unrolls = unrolls._replace(discount=np.array([[1, 0], [1, 1]], np.float32))
    (critic,) = state.params.critics
    q = functools.partial(apply, agent._critic, critic)
    left, reached = unrolls.observation[:, 0], unrolls.observation[:, 1]
    v = q(reached, apply(agent._policy, state.params.policy, reached))
    targets = unrolls.reward[:, 1] + 0.9 * np.array([0, 1]) * v
    expected = 0.5 * np.mean(np.square(targets - q(left, unrolls.action[:, 0])))
    np.testing.assert_allclose(_updated("d3pg", unrolls)[1]["critic_loss"], expected, rtol=1e-4)


def test_the_returns_of_d3pg_stop_at_actions_worse_than_the_policys() -> None:
    """Two transitions: what follows the action between them counts the less, the less it was worth."""
    agent, state, _ = _ready("d3pg")
    unrolls = _unrolls("d3pg", [False, False, False])
    unrolls = _with(unrolls, "action", 1, -unrolls.action[:, 1])
    (critic,) = state.params.critics
    q = functools.partial(apply, agent._critic, critic)
    value, tolerance = {}, 0.05
    for t in (1, 2):
        seen = unrolls.observation[:, t]
        value[t] = q(seen, apply(agent._policy, state.params.policy, seen))
    trace = np.exp(np.minimum(q(unrolls.observation[:, 1], unrolls.action[:, 1]) - value[1], 0) / tolerance)
    assert np.min(trace) < 0.9  # or the test could not fail
    late = unrolls.reward[:, 2] + 0.9 * value[2]
    early = unrolls.reward[:, 1] + 0.9 * ((1 - trace) * value[1] + trace * late)
    metrics = _updated("d3pg", unrolls, lambda_=1.0, trace_tolerance=tolerance)[1]
    np.testing.assert_allclose(metrics["target_mean"], np.mean([early, late]), rtol=1e-4)


def test_policy_and_critics_have_targets_that_follow() -> None:
    agent, before, update = _ready("d3pg", target_ema=0.25)
    assert _same(before.target, before.params)
    after, _ = update(before, jax.random.key(1), _unrolls("d3pg", [False] * 5))
    expected = jax.tree.map(lambda new, old: 0.25 * new + 0.75 * old, after.params, before.target)
    for ours, theirs in zip(jax.tree.leaves(after.target), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert _same(agent.acting_params(after).policy, after.target.policy)
    plain = _make("d3pg", target_ema=0.25, act_with_target=False)
    assert _same(plain.acting_params(after).policy, after.params.policy)


# impala.


@pytest.mark.parametrize("name", ["impala", "impala-gaussian"])
def test_actions_go_with_their_likelihood(name: str) -> None:
    agent, state, _ = _ready(name)
    observation = np.random.default_rng(0).normal(size=(50, *OBSERVATION)).astype(np.float32)
    for mode in ("explore", "greedy"):
        decision, _ = _act(name, 50, mode)
        expected = apply(agent.policy, state.params.policy, observation, decision.action, method="likelihood").log_prob
        np.testing.assert_allclose(decision.extras["log_prob"], expected, rtol=1e-5, atol=1e-5)
        assert len(np.unique(np.asarray(decision.extras["log_prob"]).round(4))) > 10
    decision, _ = _act(name, 50, "random")
    # 3 choices; a bin in five, or a density of 1/2, for each interval.
    uniform = -np.log(3 * 5 * 5) if name == "impala" else -np.log(3 * 2 * 2)
    np.testing.assert_allclose(decision.extras["log_prob"], uniform, rtol=1e-6)


@pytest.mark.parametrize("name", ["impala", "impala-gaussian"])
def test_masks_are_kept_and_counted(name: str) -> None:
    count = 300
    mask = np.tile(np.array([[1, 1, 0], [0, 0, 1], [1, 0, 1]], bool), (count // 3, 1))
    for mode in ("explore", "greedy", "random"):
        decision, _ = _act(name, count, mode, mask=mask)
        choice = np.asarray(decision.action)[:, 0].astype(int)
        assert mask[np.arange(count), choice].all()
        assert mode == "greedy" or len(set(choice[::3])) == len(set(choice[2::3])) == 2
    # Of two choices, each is drawn with 1/2; the only one with certainty.
    others = np.log(25) if name == "impala" else np.log(4)
    expected = -np.log(mask.sum(axis=1)) - others
    np.testing.assert_allclose(decision.extras["log_prob"], expected, rtol=1e-5)
    # The learner's ratios know the mask, too: on-policy they are 1.
    agent, state, update = _ready(name)
    unrolls = _unrolls(name, [False] * 5)
    unrolls = unrolls._replace(mask=np.broadcast_to([True, False, True], (2, 5, 3)))
    unrolls.action[:, :, 0] = np.where(unrolls.action[:, :, 0] == 1, 0, unrolls.action[:, :, 0])
    allowed = agent.space.allowed(unrolls.mask)
    likelihood = apply(
        agent.policy, state.params.policy, unrolls.observation, unrolls.action, allowed, method="likelihood"
    )
    unrolls = unrolls._replace(extras={"log_prob": np.asarray(likelihood.log_prob)})
    assert update(state, jax.random.key(0), unrolls)[1]["ratio_mean"] == pytest.approx(1, abs=1e-5)


def test_greedy_actions_are_the_mode() -> None:
    decisions = [_act("impala", 50, "greedy", key=key)[0] for key in range(2)]
    np.testing.assert_array_equal(decisions[0].action, decisions[1].action)
    sampled = [_act("impala", 50, "explore", key=key)[0] for key in range(20)]
    best = np.max([decision.extras["log_prob"] for decision in sampled], axis=0)
    # One sub-action after another, so not always the likeliest of all; but hardly ever behind the best of 20 samples.
    assert np.mean(np.asarray(decisions[0].extras["log_prob"]) >= best - 1e-5) > 0.6


def _on_policy(name: str) -> Unroll:
    """Unrolls whose likelihoods are those of the policy that will learn from them."""
    agent, state, _ = _ready(name)
    unrolls = _unrolls(name, [False] * 5)
    likelihood = apply(agent.policy, state.params.policy, unrolls.observation, unrolls.action, method="likelihood")
    return unrolls._replace(extras={"log_prob": np.asarray(likelihood.log_prob)})


@pytest.mark.parametrize("name", ["impala", "impala-gaussian"])
def test_ratios_are_those_of_the_likelihoods(name: str) -> None:
    unrolls = _on_policy(name)
    assert _updated(name, unrolls)[1]["ratio_mean"] == pytest.approx(1, abs=1e-5)
    twice = unrolls._replace(extras={"log_prob": unrolls.extras["log_prob"] - np.float32(np.log(2))})
    assert _updated(name, twice)[1]["ratio_mean"] == pytest.approx(2, abs=1e-4)
    # Ratios are clipped at 1: being twice as likely changes nothing.
    assert _updated(name, twice)[1]["value_loss"] == pytest.approx(
        float(_updated(name, unrolls)[1]["value_loss"]), rel=1e-4
    )


def test_the_losses_of_impala_in_numbers() -> None:
    """On-policy and with lambda 1, targets are returns: those computed here, in plain Python."""
    agent, state, _ = _ready("impala", lambda_=1.0, policy_entropy_weight=0.5)
    unrolls = _on_policy("impala")
    unrolls = _with(unrolls._replace(first=unrolls.first.copy()), "first", 3, True)
    v = np.asarray(apply(agent._value, state.value, unrolls.observation))
    r = unrolls.reward
    target_2 = r[:, 2] + 0.9 * v[:, 2]  # to 2, the last step of its episode: bootstraps there
    target_1 = r[:, 1] + 0.9 * target_2
    target_4 = r[:, 4] + 0.9 * v[:, 4]  # the unroll ends there
    errors = np.stack([target_1 - v[:, 0], target_2 - v[:, 1], target_4 - v[:, 3]], axis=1)
    embedding, action = unrolls.observation[:, [0, 1, 3]], unrolls.action[:, [0, 1, 3]]
    log_prob, entropy = apply(agent.policy, state.params.policy, embedding, action, method="likelihood")
    metrics = _updated("impala", unrolls, lambda_=1.0, policy_entropy_weight=0.5)[1]
    np.testing.assert_allclose(metrics["value_loss"], 0.5 * np.mean(np.square(errors)), rtol=1e-4)
    np.testing.assert_allclose(metrics["policy_loss"], -np.mean(errors * log_prob + 0.5 * entropy), rtol=1e-3)
    np.testing.assert_allclose(metrics["policy_entropy"], np.mean(entropy), rtol=1e-4)


def test_what_does_well_becomes_likelier() -> None:
    """An action with a reward far above the value is likelier after an update, one far below is less likely."""
    agent, state, _ = _ready("impala")
    unrolls = _on_policy("impala")
    observation, action = unrolls.observation[:, :-1], unrolls.action[:, :-1]

    def log_prob(state: Any) -> Any:
        return apply(agent.policy, state.params.policy, observation, action, method="likelihood").log_prob

    for reward, sign in ((100.0, 1), (-100.0, -1)):
        earned = unrolls._replace(reward=np.full_like(unrolls.reward, reward))
        change = log_prob(_updated("impala", earned)[0]) - log_prob(state)
        assert sign * float(np.mean(change)) > 0
