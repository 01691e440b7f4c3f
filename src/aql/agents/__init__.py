"""Agents by name."""

import dataclasses
from collections.abc import Callable

from aql.actions import ActionSpace
from aql.agents.base import Agent, EnvSpec
from aql.agents.d3pg import D3PG
from aql.agents.impala import Impala
from aql.agents.q_learning import QLearning
from aql.config import Config
from aql.errors import unknown
from aql.networks.proposals import Proposal
from aql.search import Amortized, CrossEntropy, Exact, Search, Uniform

BuildSearch = Callable[[Config, ActionSpace, int, int], Search]


@dataclasses.dataclass(frozen=True)
class Kind:
    """An agent's line in `aql agents` and how to build it."""

    summary: str
    build: Callable[[Config, EnvSpec], Agent]


def make(config: Config, env: EnvSpec) -> Agent:
    """The agent that the config names, for the environment."""
    if config.agent not in AGENTS:
        raise unknown("agent", config.agent, AGENTS, "`aql agents` lists them")
    return AGENTS[config.agent].build(config.for_subactions(env.action_space.dimensions), env)


def _space(config: Config, env: EnvSpec, discretise: bool) -> ActionSpace:
    """The environment's actions, intervals cut into bins or continuous."""
    space = env.action_space.with_bins(config.bins if discretise else None)
    return dataclasses.replace(space, interval_encoding=config.interval_encoding)


def _proposal(config: Config, space: ActionSpace, autoregressive: bool, clipped: bool = False) -> Proposal:
    return Proposal(space, config.proposal_layers, autoregressive, config.gaussian_std, clipped)


def _q_learning(build_search: BuildSearch, discretise: bool = True) -> Callable[[Config, EnvSpec], Agent]:
    """Q-learning with the given search, on intervals cut into bins or on continuous ones."""

    def build(config: Config, env: EnvSpec) -> Agent:
        space = _space(config, env, discretise)
        if config.enumerate_small and space.size <= config.num_proposal + config.num_uniform:
            search: Search = Exact(space)
            return QLearning(config, env, space, search, search)
        search = build_search(config, space, config.num_proposal, config.num_uniform)
        learner_search = build_search(config, space, config.learner_num_proposal, config.learner_num_uniform)
        return QLearning(config, env, space, search, learner_search)

    return build


def _amortized(autoregressive: bool) -> BuildSearch:
    def build(config: Config, space: ActionSpace, num_proposal: int, num_uniform: int) -> Search:
        proposal = _proposal(config, space, autoregressive)
        return Amortized(space, proposal, num_proposal, num_uniform, config.entropy_weight, config.uniform_share)

    return build


def _uniform(config: Config, space: ActionSpace, num_proposal: int, num_uniform: int) -> Search:
    return Uniform(space, num_proposal + num_uniform)


def _cross_entropy(config: Config, space: ActionSpace, num_proposal: int, num_uniform: int) -> Search:
    return CrossEntropy(space, config.cem_samples, config.cem_elites, config.cem_iterations)


def _exact(config: Config, space: ActionSpace, num_proposal: int, num_uniform: int) -> Search:
    return Exact(space)


def _d3pg(config: Config, env: EnvSpec) -> Agent:
    return D3PG(config, env, env.action_space.with_bins(None))


def _impala(discretise: bool) -> Callable[[Config, EnvSpec], Agent]:
    """IMPALA on intervals cut into bins or on continuous ones."""

    def build(config: Config, env: EnvSpec) -> Agent:
        space = _space(config, env, discretise)
        # Policy gradients need the likelihood of what was sampled, bounds and all: else they have a bias at the bounds.
        return Impala(config, env, space, _proposal(config, space, autoregressive=True, clipped=True))

    return build


AGENTS: dict[str, Kind] = {
    "aql": Kind(
        "amortized Q-learning: autoregressive proposal over discretised actions",
        _q_learning(_amortized(True)),
    ),
    "aql-independent": Kind("aql with independent sub-actions in the proposal", _q_learning(_amortized(False))),
    "aql-gaussian": Kind(
        "aql with a Gaussian proposal over continuous sub-actions",
        _q_learning(_amortized(True), discretise=False),
    ),
    "uniform": Kind("uniform Q-learning: aql without the learned proposal", _q_learning(_uniform)),
    "qtopt": Kind("QT-Opt: Q-learning with the cross-entropy method", _q_learning(_cross_entropy, discretise=False)),
    "exact": Kind("exact Q-learning: every action is scored", _q_learning(_exact)),
    "d3pg": Kind("distributed DDPG: a deterministic policy that follows Q's gradient; continuous actions only", _d3pg),
    "impala": Kind("actor-critic with V-trace: a stochastic policy over discretised actions", _impala(True)),
    "impala-gaussian": Kind("impala with a Gaussian policy over continuous sub-actions", _impala(False)),
}
