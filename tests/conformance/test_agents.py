"""Every agent on every kind of action space: what the runtime relies on."""

import functools
import itertools
import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import agents
from aql.actions import ActionSpace, Discrete, Interval
from aql.agents.base import EnvSpec, Mode
from aql.agents.critic import scale
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.errors import UserError
from aql.experience import Unroll
from aql.networks import apply
from aql.runtime import checkpoint
from aql.runtime.actor import jit_act
from aql.runtime.learner import _jit_updates
from aql.search import blocks

SPACES = {
    "discrete": ActionSpace((Discrete(4), Discrete(3), Discrete(2))),
    "interval": ActionSpace((Interval(-2, 3), Interval(-1, 1))),
    "hybrid": ActionSpace((Discrete(3), Interval(-1, 1), Interval(0, 5))),
    "single": ActionSpace((Discrete(3),)),
    "21-d": ActionSpace(tuple(Interval(-1, 1) for _ in range(21))),
}
# What agents do not claim, and refuse.
REFUSED = {("exact", "21-d"), *itertools.product(["d3pg"], ["discrete", "hybrid", "single"])}
UPDATES_WITHOUT_CHANCE = ("exact", "d3pg", "impala", "impala-gaussian")
OBSERVATION = (3, 2)  # not flat, so that agents have to flatten it
B, T = 4, 3
MODES: tuple[Any, ...] = ("explore", "greedy", "random")
SMALL: dict[str, Any] = {
    "critic_layers": (8,),
    "proposal_layers": (7,),
    "num_proposal": 3,
    "num_uniform": 4,
    "learner_num_proposal": 2,
    "learner_num_uniform": 3,
    "cem_samples": 6,
    "cem_elites": 2,
    "cem_iterations": 2,
    "enumerate_small": False,
    "unroll_length": T,
    "batch_size": B,
    "learning_rate": 1e-2,
}
# The settings that change what an update does, apart from numbers.
VARIANTS: dict[str, dict[str, Any]] = {
    "one critic": {"num_critics": 1},
    "twin": {},
    "paper": {
        "fresh_search": False,
        "num_critics": 1,
        "target_ema": 1.0,
        "layer_norm": False,
        "normalise_observations": False,
        "epsilon_per_subaction": False,
    },
    "curved": {"curvature": True, "most_reward": 1.0, "small_values": 0.1, "bias_unit": 30.0},
    "one-hot, mean": {"interval_encoding": "one-hot", "pessimism": 0.0},
}


class Case(NamedTuple):
    """An agent with its compiled functions and its state after three updates."""

    agent: Any
    config: Config
    space: ActionSpace
    act: Any  # in all modes at once, which compiles the search once
    update: Any
    before: Any
    after: Any
    metrics: dict[str, Any]


def _make(agent: str, space: str, **settings: Any) -> tuple[Any, Config]:
    config = Config(agent=agent, **(SMALL | settings))
    return agents.make(config, EnvSpec(OBSERVATION, SPACES[space])), config


def _observation(seed: int, *leading: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(*leading, *OBSERVATION)).astype(np.float32)


def _now(observation: Any) -> TimeStep:
    """What environments in the middle of their episodes show."""
    zeros, no = np.zeros(len(observation), np.float32), np.zeros(len(observation), bool)
    return TimeStep(observation, zeros, zeros + 1, no, no, no_masks(len(observation)))


def _unrolls(agent: Any, seed: int, *leading: int) -> Unroll:
    """Unrolls [*leading, B, T+1] with a reset somewhere."""
    rng = np.random.default_rng(seed)
    shape = (*leading, B, T + 1)
    uniform = rng.random((2, *shape, agent.space.dimensions))
    choice = agent.space.from_index(np.floor(uniform * agent.space.num_choices))
    actions = np.where(agent.space.num_choices > 0, choice, 2 * uniform - 1).astype(np.float32)
    first = np.zeros(shape, bool)
    first[..., 0, 2] = True
    discount = np.ones(shape, np.float32)
    discount[..., 1, 1] = 0
    first[..., 1, 2] = True
    reward = rng.normal(size=shape).astype(np.float32)
    extras = {
        "best_action": actions[1],
        "from_proposal": rng.random(shape) < 0.5,
        "log_prob": -rng.random(shape).astype(np.float32),
    }
    wanted = {name: extras[name] for name in _extras(agent)}
    return Unroll(_observation(seed, *shape), actions[0], reward, discount, first, np.ones((*shape, 0), bool), wanted)


def _extras(agent: Any) -> list[str]:
    """What the agent wants back from its decisions."""

    def act(state: Any, key: Any, now: Any) -> Any:
        params, actor_state = agent.acting_params(state), agent.init_actors(np.arange(B), B)
        return agent.act(params, actor_state, key, now, "explore")[0].extras

    key = jax.random.key(0)
    return list(jax.eval_shape(act, jax.eval_shape(agent.init, key), key, _now(_observation(0, B))))


def _any_state(agent: Any) -> Any:
    """A learner's state of random numbers: compiling `init` for every case would take longer than the tests."""
    rng = np.random.default_rng(0)

    def fill(leaf: Any) -> Any:
        return jnp.asarray(rng.uniform(0.1, 0.5, leaf.shape) if leaf.dtype == np.float32 else 0, leaf.dtype)

    return jax.tree.map(fill, jax.eval_shape(agent.init, jax.random.key(0)))


@functools.cache
def _case(name: str, space: str, variant: str = "one critic") -> Case:
    agent, config = _make(name, space, **VARIANTS[variant])

    @jax.jit
    def act(params: Any, key: Any, observation: Any) -> Any:
        actor_state = agent.init_actors(np.arange(B), B)
        return {mode: agent.act(params, actor_state, key, _now(observation), mode)[0] for mode in MODES}

    before, update = _any_state(agent), _jit_updates(agent)
    state, metrics = update(jax.tree.map(jnp.copy, before), jax.random.key(1), np.uint32(0), _unrolls(agent, 0, 3))
    return Case(agent, config, agent.space, act, update, before, state, metrics)


def _act(case: Case, state: Any, seed: int = 0, key: int = 0) -> Any:
    return case.act(case.agent.acting_params(state), jax.random.key(key), _observation(seed, B))


def _cases() -> Any:
    for name, space in itertools.product(agents.AGENTS, SPACES):
        if (name, space) not in REFUSED:
            yield name, space, "one critic"
    for name, variant in (
        *(("aql", variant) for variant in ("twin", "paper", "curved", "one-hot, mean")),
        ("qtopt", "paper"),
        ("exact", "twin"),
        *(("d3pg", variant) for variant in ("twin", "paper", "one-hot, mean")),
        ("impala", "paper"),
        ("impala", "one-hot, mean"),
    ):
        yield name, _richest(name), variant


def _richest(name: str) -> str:
    """The most varied space that the agent takes."""
    return "interval" if (name, "hybrid") in REFUSED else "hybrid"


def _choices(space: ActionSpace) -> dict[int, list[float]]:
    """What each sub-action with choices can be, written down apart from the code."""
    five = [-1.0, -0.5, 0.0, 0.5, 1.0]
    numbers = {0: None, 5: five} | {n: [float(i) for i in range(n)] for n in (2, 3, 4)}
    return {d: values for d, n in enumerate(space.num_choices) if (values := numbers[int(n)]) is not None}


every_case = pytest.mark.parametrize(("name", "space", "variant"), list(_cases()))


def _equal(one: Any, other: Any) -> bool:
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(
        np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(leaves, others, strict=True)
    )


@every_case
def test_actions_are_actions_of_the_space(name: str, space: str, variant: str) -> None:
    case = _case(name, space, variant)
    for seed, mode in itertools.product(range(4), MODES):
        decision = _act(case, case.after, seed)[mode]
        best = decision.extras.get("best_action", decision.action)  # stored whatever is done
        for action in (np.asarray(decision.action), np.asarray(best)):
            assert action.shape == (B, case.space.dimensions)
            assert action.dtype == np.float32
            choices = case.space.num_choices > 0
            is_choice = [action[:, d, None] == np.asarray(values) for d, values in _choices(case.space).items()]
            assert all(matches.any(axis=1).all() for matches in is_choice)
            assert np.abs(action[:, ~choices]).max(initial=0) <= 1
            theirs = case.space.to_env(action)
            for d, sub in enumerate(SPACES[space].subactions):
                low, high = (0, sub.n - 1) if isinstance(sub, Discrete) else (sub.low, sub.high)
                assert theirs[:, d].min() >= low - 1e-6
                assert theirs[:, d].max() <= high + 1e-6
        if mode == "greedy":
            np.testing.assert_array_equal(decision.action, best)


@every_case
def test_updates_change_everything_that_learns(name: str, space: str, variant: str) -> None:
    case = _case(name, space, variant)
    for value in case.metrics.values():
        assert np.isfinite(value)
        assert np.shape(value) == ()
    before, after = checkpoint.flatten(case.before), checkpoint.flatten(case.after)
    assert before.keys() == after.keys()
    constant = set() if case.config.normalise_observations else {"statistics"}
    for path, leaf in after.items():
        assert np.all(np.isfinite(leaf)), path
        if not constant & set(path.split("/")):
            assert np.any(leaf != before[path]), path


@every_case
def test_state_survives_a_checkpoint(name: str, space: str, variant: str) -> None:
    case = _case(name, space, variant)
    restored = checkpoint.unflatten(case.before, checkpoint.flatten(case.after))
    assert _equal(restored, case.after)
    unrolls = _unrolls(case.agent, 5, 3)
    results = [
        case.update(jax.tree.map(jnp.copy, state), jax.random.key(2), np.uint32(1), unrolls)
        for state in (case.after, restored)
    ]
    assert _equal(*results)
    assert _equal(_act(case, case.after), _act(case, restored))


@every_case
def test_the_key_decides(name: str, space: str, variant: str) -> None:
    case = _case(name, space, variant)
    once = _act(case, case.after, key=3)
    assert _equal(once, _act(case, case.after, key=3))
    others = [_act(case, case.after, key=key) for key in range(4, 12)]
    for mode in ("explore", "random"):
        assert any(np.any(once[mode].action != other[mode].action) for other in others)
    unrolls = _unrolls(case.agent, 6, 3)
    once, again, other = (
        case.update(jax.tree.map(jnp.copy, case.after), jax.random.key(key), np.uint32(0), unrolls)[0]
        for key in (3, 3, 4)
    )
    assert _equal(once, again)
    searches_by_chance = name not in UPDATES_WITHOUT_CHANCE and case.config.fresh_search and space != "single"
    if searches_by_chance:
        assert not _equal(once, other)


@pytest.mark.parametrize("name", agents.AGENTS)
def test_init_is_a_function_of_the_key(name: str) -> None:
    agent, _ = _make(name, _richest(name))
    init = jax.jit(agent.init)
    once, again, other = (init(jax.random.key(key)) for key in (0, 0, 1))
    assert _equal(once, again)
    params, others = checkpoint.flatten(once), checkpoint.flatten(other)
    kernels = [path for path in params if path.endswith(("kernel", "prefix")) and "optimiser" not in path]
    assert len(kernels) >= 4
    for path in kernels:
        assert np.any(params[path] != others[path]), path
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    assert all(a.dtype == b.dtype for a, b in zip(jax.tree.leaves(shapes), jax.tree.leaves(once), strict=True))


@pytest.mark.parametrize("name", agents.AGENTS)
def test_one_compilation_per_function(name: str) -> None:
    case = _case(name, _richest(name))
    act = jit_act(case.agent)
    state = checkpoint.unflatten(case.before, checkpoint.flatten(case.after))  # as after a resume
    for seed in range(3):
        actor_state = case.agent.init_actors(np.arange(B), B)
        for mode in MODES:
            _, actor_state = act(
                case.agent.acting_params(state),
                actor_state,
                jax.random.PRNGKey(0),
                np.uint32(seed),
                _now(_observation(seed, B)),
                mode=mode,
            )
        state, _ = case.update(state, jax.random.key(seed), np.uint32(seed), _unrolls(case.agent, seed, 3))
    assert cast(Any, act)._cache_size() == len(MODES)
    assert case.update._cache_size() == 1


# What depends on what.


@functools.cache
def _one_update(name: str, reward_scale: float = 1, **settings: Any) -> Any:
    agent, _ = _make(name, "hybrid", **settings)
    unrolls = jax.tree.map(lambda leaf: leaf[0], _unrolls(agent, 0, 1))
    unrolls = unrolls._replace(reward=reward_scale * unrolls.reward)
    return jax.jit(agent.update)(_any_state(agent), jax.random.key(1), unrolls)[0]


@pytest.mark.parametrize("name", ["aql", "aql-independent", "aql-gaussian"])
def test_critics_and_proposal_do_not_touch_each_other(name: str) -> None:
    plain = _one_update(name)
    # What the proposal descends changes the proposal alone.
    other = _one_update(name, entropy_weight=5.0, proposal_learning_rate=0.1)
    assert _equal(
        plain._replace(params=None, search_optimiser=None), other._replace(params=None, search_optimiser=None)
    )
    assert _equal(plain.params.network.critics, other.params.network.critics)
    assert _equal(plain.params.statistics, other.params.statistics)
    assert not _equal(plain.params.search, other.params.search)
    # What the critics descend changes the critics alone.
    other = _one_update(name, reward_scale=100)
    assert not _equal(plain.params.network.critics, other.params.network.critics)
    assert _equal(plain.params.search, other.params.search)
    assert _equal(plain.search_optimiser, other.search_optimiser)


def test_the_target_follows_slowly() -> None:
    agent, _ = _make("exact", "single", target_ema=0.25)
    before = jax.jit(agent.init)(jax.random.key(0))
    assert _equal(before.target.critics, before.params.network.critics)
    unrolls = jax.tree.map(lambda leaf: leaf[0], _unrolls(agent, 0, 1))
    after, _ = jax.jit(agent.update)(before, jax.random.key(1), unrolls)
    expected = jax.tree.map(
        lambda new, old: 0.25 * new + 0.75 * old, after.params.network.critics, before.target.critics
    )
    for ours, theirs in zip(jax.tree.leaves(after.target.critics), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_actors_can_use_the_target() -> None:
    case = _case("exact", "single")
    plain, _ = _make("exact", "single", act_with_target=False)
    targeting, _ = _make("exact", "single", act_with_target=True)
    assert not _equal(case.after.target.critics, case.after.params.network.critics)
    assert _equal(plain.acting_params(case.after).network.critics, case.after.params.network.critics)
    assert _equal(targeting.acting_params(case.after).network.critics, case.after.target.critics)
    without, _ = _make("exact", "single", act_with_target=True, target_ema=1.0)
    state = _any_state(without)
    assert _equal(without.acting_params(state), state.params)


def test_greedy_decisions_use_averages_in_turn() -> None:
    settings = {"greedy_averages": 3, "greedy_turn": 2, "epsilon_low": 0.0, "epsilon_high": 0.0}
    agent, _ = _make("exact", "discrete", act_with_target=False, **settings)
    state, update = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)
    unrolls = jax.tree.map(lambda leaf: leaf[0], _unrolls(agent, 0, 1))
    for time in range(64):  # four moments that count
        state, _ = update(state, jax.random.key(time), unrolls)
    params, now = agent.acting_params(state), _now(_observation(3, 64))
    actors = agent.init_actors(np.zeros(64, int), 64)
    embedding, _ = agent._embedding.act(params.network.torso, params.statistics, now, actors.memory)
    actions = agent.space.enumerate()

    def values(critics: Any) -> np.ndarray:
        return np.mean([apply(agent._critic, p, embedding[:, None], actions[None]) for p in critics], axis=0)

    averages = [jax.tree.map(lambda leaf, k=k: leaf[k], state.averages.networks.critics) for k in range(3)]
    decide = functools.partial(jit_act(agent), params)
    decided = []
    for number in range(8):
        before = actors
        decision, actors = decide(before, jax.random.key(1), np.uint32(number), now, mode="greedy")
        whose = values(averages[number // 2 % 3])
        np.testing.assert_array_equal(decision.action, actions[np.argmax(whose, axis=1)])
        shown = agent.explain(params, before, jax.random.key(1), now, decision.action).values
        np.testing.assert_allclose(shown, whose, rtol=1e-4, atol=1e-5)  # a film shows what decides
        decided.append(np.asarray(decision.action))
    assert not np.array_equal(decided[0], decided[2])
    explored, _ = decide(actors, jax.random.key(1), np.uint32(0), now, mode="explore")
    np.testing.assert_array_equal(explored.action, actions[np.argmax(values(params.network.critics), axis=1)])
    plain, _ = _make("exact", "discrete")
    assert plain.acting_params(_any_state(plain)).averages == ()


def test_critics_learn_on_their_scale_and_tell_q() -> None:
    """Episodes of one step with reward 0.01: what is learned, in numbers, and what is told about it."""
    agent, config = _make("exact", "discrete", most_reward=1.0, gamma=0.99, small_values=0.3, bias_unit=30.0)
    state, update = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)
    unrolls = jax.tree.map(lambda leaf: leaf[0], _unrolls(agent, 0, 1))
    ends = unrolls._replace(
        reward=0.01 + 0 * unrolls.reward, discount=0 * unrolls.discount, first=unrolls.first & False
    )
    for time in range(400):
        state, metrics = update(state, jax.random.key(time), ends)
    assert metrics["target_mean"] == pytest.approx(0.01)
    assert metrics["q_mean"] == pytest.approx(0.01, rel=0.2)
    assert metrics["q_max"] == pytest.approx(0.01, rel=0.5)
    network = state.params.network
    embedding = agent._embedding.learn(network.torso, state.params.statistics, ends)
    said = apply(agent._critic, network.critics[0], embedding[:, :-1], ends.action[:, :-1])
    np.testing.assert_allclose(said, 20.007, rtol=0.05)  # 100 * (0.7 * 1e-4 + 0.3 * log(1 + 1e8) / log(1 + 1e12))
    now, actors = _now(_observation(3, 2)), agent.init_actors(np.zeros(2, int), 2)
    params = agent.acting_params(state)
    embedding, _ = agent._embedding.act(params.network.torso, params.statistics, now, actors.memory)
    said = agent._evaluate(params.network.critics, embedding).score(agent.space.enumerate()[None])
    shown = agent.explain(params, actors, jax.random.key(1), now, agent.space.enumerate()[:2]).values
    np.testing.assert_allclose(shown, scale(config).expand(said), rtol=1e-4)


def test_only_actors_that_explore_are_optimists() -> None:
    agent, _ = _make("exact", "discrete", optimism=1.0, num_critics=2, epsilon_low=0.0, epsilon_high=0.0)
    state = _any_state(agent)
    params, now = agent.acting_params(state), _now(_observation(3, 64))
    actors = agent.init_actors(np.arange(64), 64)
    embedding, _ = agent._embedding.act(params.network.torso, params.statistics, now, actors.memory)
    actions = agent.space.enumerate()
    q = np.stack([apply(agent._critic, p, embedding[:, None], actions[None]) for p in params.network.critics])
    act = functools.partial(jit_act(agent), params, actors, jax.random.key(1), np.uint32(0), now)
    chosen = {mode: act(mode=mode)[0].action for mode in ("greedy", "explore")}
    # A mean of two and once their deviation is the larger one.
    np.testing.assert_array_equal(chosen["greedy"], actions[np.argmax(q.mean(axis=0), axis=1)])
    np.testing.assert_array_equal(chosen["explore"], actions[np.argmax(q.max(axis=0), axis=1)])
    assert not np.array_equal(chosen["greedy"], chosen["explore"])
    # a* as stored is learned from, unless the learner searches again: then nobody is an optimist.
    stored, _ = _make(
        "exact", "discrete", optimism=1.0, fresh_search=False, num_critics=2, epsilon_low=0.0, epsilon_high=0.0
    )
    decision, _ = jit_act(stored)(params, actors, jax.random.key(1), np.uint32(0), now, mode="explore")
    np.testing.assert_array_equal(decision.action, chosen["greedy"])


@pytest.mark.parametrize(
    ("space", "settings", "expected"),
    [
        ("21-d", {}, [-1.0, 2.0]),
        ("21-d", {"pessimism": 0.5}, [0.0, 3.0]),
        ("21-d", {"pessimism": 0.0}, [1.0, 4.0]),
        ("21-d", {"few_subactions": 20}, [-1.0, 2.0]),
        ("21-d", {"few_subactions": 21}, [1.0, 4.0]),
        ("single", {"few_subactions": 7}, [1.0, 4.0]),
    ],
)
def test_targets_are_as_pessimistic_as_told(space: str, settings: Any, expected: Any) -> None:
    agent, _ = _make("uniform", space, **settings)
    np.testing.assert_allclose(agent._judge(jnp.array([[3.0, 2.0], [-1.0, 6.0]])), expected, rtol=1e-6)


def test_targets_bootstrap_with_q_whatever_critics_count_in() -> None:
    agent, _ = _make("uniform", "single", gamma=0.99, most_reward=1.0, small_values=0.3)
    # On a scale that goes to 100, 25.7 stands for 1 and 20.007 for a hundredth.
    said = jnp.array([[25.7, 64.24743], [100.0, 20.007]])
    np.testing.assert_allclose(agent._judge(said), [1, 0.01], rtol=1e-4)


def test_small_spaces_are_enumerated_if_wished() -> None:
    from aql.search import Amortized, Exact

    enumerating, _ = _make("aql", "discrete", enumerate_small=True, num_proposal=12, num_uniform=12)
    assert isinstance(enumerating.search, Exact)
    for settings in ({"enumerate_small": False}, {"enumerate_small": True, "num_uniform": 11}):
        agent, _ = _make("aql", "discrete", **({"num_proposal": 12, "num_uniform": 12} | settings))
        assert isinstance(agent.search, Amortized)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (SPACES["discrete"], "24 actions"),
        (SPACES["21-d"], "4.8e+14 actions"),
        (ActionSpace((Discrete(10),) * 400), "1e+400 actions"),  # more than a float can hold
    ],
    ids=["24", "5^21", "10^400"],
)
def test_summary_names_the_size(space: ActionSpace, words: str) -> None:
    agent = agents.make(Config(agent="aql", **SMALL), EnvSpec(OBSERVATION, space))
    assert agent.summary == f"amortized search in {words}"


def test_who_discretises() -> None:
    for name in agents.AGENTS:
        space = _make(name, "interval", bins=7)[0].space
        bins = [0, 0] if name in ("aql-gaussian", "qtopt", "d3pg", "impala-gaussian") else [7, 7]
        assert space.num_choices.tolist() == bins


@pytest.mark.parametrize(("name", "space"), sorted(REFUSED))
def test_refusals_name_an_agent_that_can(name: str, space: str) -> None:
    with pytest.raises(UserError, match="use the agent `aql`"):
        _make(name, space)


def test_unknown_agents_are_refused_with_near_names() -> None:
    with pytest.raises(UserError, match=r"unknown agent 'uniforn'.*did you mean uniform"):
        _make("uniforn", "single")


# Exploration.


@pytest.mark.parametrize(
    ("settings", "total", "expected"),
    [
        ({"epsilon_low": 0.02, "epsilon_high": 0.32}, 5, [0.02, 0.04, 0.08, 0.16, 0.32]),
        ({"epsilon_low": 0.02, "epsilon_high": 0.32}, 1, [0.02]),
        ({"epsilon_low": 0.0, "epsilon_high": 0.4}, 3, [0.0, 0.2, 0.4]),
        ({"epsilon_low": 0.3, "epsilon_high": 0.3}, 2, [0.3, 0.3]),
        ({"epsilon_low": 0.05, "epsilon_high": 0.5, "epsilon_spacing": "tenth"}, 4, [0.5, 0.05, 0.05, 0.05]),
        ({"epsilon_low": 0.05, "epsilon_high": 0.5, "epsilon_spacing": "tenth"}, 100, [0.5] * 10 + [0.05] * 90),
    ],
)
def test_epsilons_in_numbers(settings: Any, total: int, expected: Any) -> None:
    agent, _ = _make("exact", "single", **settings)
    np.testing.assert_allclose(agent.init_actors(np.arange(total), total).curiosity.epsilon, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("space", "settings", "expected"),
    [
        ("single", {"few_subactions": 7}, [0.09, 0.27]),
        ("21-d", {"few_subactions": 7}, [0.01, 0.03]),  # a third of 21, squared
        ("21-d", {"few_subactions": 0}, [0.09, 0.27]),
        ("21-d", {"few_subactions": 7, "epsilon_per_subaction": False}, [0.09, 0.27]),
    ],
)
def test_where_there_are_many_subactions_each_explores_less(space: str, settings: Any, expected: Any) -> None:
    agent, _ = _make("uniform", space, epsilon_low=0.09, epsilon_high=0.27, **settings)
    np.testing.assert_allclose(agent.init_actors(np.arange(2), 2).curiosity.epsilon, expected, rtol=1e-5)


@pytest.mark.parametrize(("few", "expected"), [(0, 2), (20, 1), (21, 2)])
def test_the_sensors_of_a_body_with_many_joints_are_not_magnified(few: int, expected: int) -> None:
    agent, _ = _make("uniform", "21-d", magnification=10.0, few_subactions=few)
    state = agent.init(jax.random.key(0))
    kernel = state.params.network.critics[0]["params"]["state_tower"]["Dense_0"]["kernel"]
    assert len(kernel) == expected * math.prod(OBSERVATION)


def test_epsilon_belongs_to_the_place_among_all_actors() -> None:
    agent, _ = _make("exact", "single", epsilon_low=0.02, epsilon_high=0.32)
    np.testing.assert_allclose(agent.init_actors(np.arange(2, 4), 5).curiosity.epsilon, [0.08, 0.16], rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "total", "expected"),
    [
        ({"exploration_hold": 1.0}, 4, [1, 1, 1, 1]),
        ({"exploration_hold": 8.0}, 4, [1, 2, 4, 8]),
        ({"exploration_hold": 8.0}, 1, [1]),
        ({"exploration_hold": 8.0, "epsilon_low": 0.0}, 4, [1, 2, 4, 8]),
        ({"exploration_hold": 4.0, "epsilon_spacing": "tenth"}, 20, [4] * 2 + [1] * 18),
    ],
)
def test_how_long_actors_hold_on_in_numbers(settings: Any, total: int, expected: Any) -> None:
    agent, _ = _make("exact", "single", **settings)
    keep = agent.init_actors(np.arange(total), total).curiosity.keep
    np.testing.assert_allclose(1 / (1 - keep), expected, rtol=1e-5)


def _explore(states: int, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    agent, _ = _make("exact", "discrete", **settings)
    params = agent.acting_params(jax.jit(agent.init)(jax.random.key(0)))
    decision, _ = jit_act(agent)(
        params,
        agent.init_actors(np.arange(states), states),
        jax.random.key(1),
        np.uint32(0),
        _now(_observation(0, states)),
        mode="explore",
    )
    return np.asarray(decision.action), np.asarray(decision.extras["best_action"])


@pytest.mark.parametrize("per_subaction", [True, False])
def test_without_epsilon_the_best_action_is_done(per_subaction: bool) -> None:
    action, best = _explore(500, epsilon_low=0.0, epsilon_high=0.0, epsilon_per_subaction=per_subaction)
    np.testing.assert_array_equal(action, best)


@pytest.mark.parametrize("per_subaction", [True, False])
def test_epsilon_is_a_frequency(per_subaction: bool) -> None:
    states, epsilon = 6000, 0.3
    action, best = _explore(states, epsilon_low=epsilon, epsilon_high=epsilon, epsilon_per_subaction=per_subaction)
    same = action == best
    # An exploring sub-action of K choices is the best one by chance with probability 1 / K.
    alone = 1 - epsilon + epsilon / np.array([4, 3, 2])
    together = np.prod(alone) if per_subaction else 1 - epsilon + epsilon / 24
    for observed, expected in [*zip(same.mean(axis=0), alone, strict=True), (same.all(axis=1).mean(), together)]:
        assert abs(observed - expected) < 4 * np.sqrt(expected * (1 - expected) / states)


def test_epsilon_1_is_uniform() -> None:
    action, _ = _explore(6000, epsilon_low=1.0, epsilon_high=1.0)
    for d, choices in enumerate((4, 3, 2)):
        share = np.bincount(action[:, d].astype(int), minlength=choices) / 6000
        np.testing.assert_allclose(share, 1 / choices, atol=4 * np.sqrt(0.25 / 6000))


def _wander(steps: int, mode: Mode, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sub-actions of 300 most curious actors and whether they explore, [steps, actors, 2]."""
    agent, _ = _make("exact", "interval", **settings)
    params = agent.acting_params(jax.jit(agent.init)(jax.random.key(0)))
    act, actors = jit_act(agent), agent.init_actors(np.full(300, 299), 300)
    actions, rules = [], []
    for step in range(steps):
        decision, actors = act(
            params, actors, jax.random.key(1), np.uint32(step), _now(_observation(step, 300)), mode=mode
        )
        actions.append(decision.action)
        rules.append(np.broadcast_to(actors.whims.rules, decision.action.shape))
    return np.asarray(actions), np.asarray(rules)


@pytest.mark.parametrize("hold", [1.0, 4.0])
@pytest.mark.parametrize("per_subaction", [True, False])
def test_chance_holds_on_and_epsilon_stays_its_share(hold: float, per_subaction: bool) -> None:
    settings: dict[str, Any] = {"epsilon_low": 0.2, "epsilon_high": 0.2, "epsilon_per_subaction": per_subaction}
    action, rules = _wander(100, "explore", exploration_hold=hold, **settings)
    assert abs(rules[40:].mean() - 0.2) < 0.02
    # A whim goes on with probability 1 - 1/hold, and if it does not, another one may begin.
    begins = 0.2 / hold / (1 - 0.2 * (1 - 1 / hold))
    still = rules[:-1] & rules[1:]
    assert abs(still.sum() / rules[:-1].sum() - (1 - 1 / hold + begins / hold)) < 0.03
    # Of five values the next whim has the same by chance in one of five.
    same = (action[1:] == action[:-1])[still].mean()
    goes_on = (1 - 1 / hold) / (1 - 1 / hold + begins / hold)
    assert abs(same - (goes_on + (1 - goes_on) / 5)) < 0.03


def test_chance_holds_on_before_learning_begins() -> None:
    action, rules = _wander(60, "random", exploration_hold=4.0)
    assert rules.all()
    assert abs((action[1:] == action[:-1]).mean() - (0.75 + 0.25 / 5)) < 0.02


def test_exact_scores_many_actions_in_blocks_when_it_acts_and_when_it_learns() -> None:
    """No array has an activation for every action in every state: that would go through main memory."""
    space = ActionSpace(tuple(Discrete(n) for n in (7, 7, 3, 3, 2, 2, 2)))
    config = Config(agent="exact", **(SMALL | {"critic_layers": (256,)}))
    agent: Any = agents.make(config, EnvSpec(OBSERVATION, space))
    state, key = jax.eval_shape(agent.init, jax.random.key(0)), jax.random.key(1)

    def act(state: Any) -> Any:
        given = (agent.acting_params(state), agent.init_actors(np.arange(B), B), key, _now(_observation(0, B)))
        return agent.act(*given, "explore")

    def learn(state: Any) -> Any:
        return agent.update(state, key, _unrolls(agent, 0))

    for function, states in ((act, B), (learn, B * T)):
        sizes = list(_sizes(jax.make_jaxpr(function)(state).jaxpr))
        assert states * 3528 in sizes  # all values are there
        assert max(sizes) <= blocks.BLOCK_FLOATS < states * 3528 * 256 / 10


def _sizes(jaxpr: Any) -> Any:
    """The size of every array that is computed, also inside of loops."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(variable.aval.shape)) for variable in equation.outvars)
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _sizes(inner)
