"""Q-learning with a search in place of the maximum: AQL, Uniform Q, QT-Opt and exact Q are this one agent.

a*(s)  = search of argmax_a Q(s, a)
act      a*(s), epsilon-greedy, where the critics' disagreement may count in favour of an action;
         greedily by averages of the critics in turn
Q        follows Peng's Q(lambda) targets that bootstrap with Q(s', a*(s'))
search   learns to find a*(s), if it can learn
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from aql.agents import averages
from aql.agents.averages import Averages
from aql.agents.base import ActorState, Decision, Metrics, Mode, Params, Thought
from aql.agents.critic import CriticAgent, Evaluated, follow, follower, lambda_targets, scale
from aql.agents.networked import descend
from aql.envs.base import TimeStep
from aql.experience import Unroll
from aql.exploration import Curiosity, Whims, next_whims, no_whims, spread_curiosity
from aql.networks import torsos
from aql.search import Found, Search


class Network(NamedTuple):
    """Q: what learns from its loss, and what a target network follows."""

    torso: Params
    critics: tuple[Params, ...]


class ActingParams(NamedTuple):
    """What actors need."""

    network: Network
    search: Params
    statistics: torsos.Statistics
    averages: Averages | tuple[()] = ()  # what greedy decisions use instead of the network, if there are any


class ActorMemory(NamedTuple):
    """What each actor keeps from step to step."""

    curiosity: Curiosity
    memory: jax.Array  # [B, S] see `Embedding`
    whims: Whims
    decisions: jax.Array  # [B] made so far, as many by each


class QLearningState(NamedTuple):
    """What learning changes."""

    params: ActingParams
    target: Network | tuple[()]  # empty without a target network
    averages: Averages | tuple[()]  # empty where greedy decisions use what actors use
    critic_optimiser: optax.OptState
    search_optimiser: optax.OptState


@dataclasses.dataclass(frozen=True)
class QLearning(CriticAgent):
    """The agent. `search` serves the actors, `learner_search` (the same with fewer candidates) the learner."""

    search: Search
    learner_search: Search

    @property
    def summary(self) -> str:
        """The search and the size of what it searches."""
        return f"{type(self.search).__name__.lower()} search in {self.space.describe_size()} actions"

    def init(self, key: jax.Array) -> QLearningState:
        """Fresh parameters and optimisers."""
        critic_key, search_key = jax.random.split(key)
        torso, embedding = self._init_torso(key)
        network = Network(torso, self._init_critics(critic_key, embedding))
        search = self.search.init(search_key, embedding)
        return QLearningState(
            params=ActingParams(network, search, self._embedding.init_statistics()),
            target=follower(network, self.config.target_ema),
            averages=averages.start(network, self.config.greedy_averages) if self.config.greedy_averages else (),
            critic_optimiser=self._value_optimiser.init(network),
            search_optimiser=self._choice_optimiser.init(search),
        )

    def acting_params(self, state: QLearningState) -> ActingParams:
        """Torso, critics, proposal and observation statistics."""
        params = state.params._replace(averages=state.averages)
        return params._replace(network=state.target) if self.config.act_with_target and state.target else params

    def init_actors(self, index: np.ndarray, total: int) -> ActorState:
        """How curious each actor is, and nothing to remember."""
        curiosity = spread_curiosity(self.config, index, total)
        whims = no_whims(len(index), self.space.dimensions, self.config.epsilon_per_subaction)
        return ActorMemory(
            curiosity, self._embedding.init_memory(len(index)), whims, decisions=jnp.zeros(len(index), jnp.int32)
        )

    def act(
        self,
        params: ActingParams,
        actor_state: ActorState,
        key: jax.Array,
        now: TimeStep,
        mode: Mode,
    ) -> tuple[Decision, ActorState]:
        """a* in every state, and the epsilon-greedy action."""
        search_key, explore_key, uniform_key = jax.random.split(key, 3)
        if mode == "greedy":
            params = self._steady(params, actor_state)
        embedding, memory = self._embedding.act(params.network.torso, params.statistics, now, actor_state.memory)
        allowed = self.space.allowed(now.mask)
        # The learner that searches again is not misled by the a* of an optimist. One that does not would learn from it.
        optimism = self.config.optimism if mode == "explore" and self.config.fresh_search else 0.0
        found = self._find(params, search_key, embedding, allowed, optimism)
        best = found.action
        whims = actor_state.whims
        action = best
        if mode != "greedy":
            drawn = self.space.sample(uniform_key, (len(best), 1), allowed)[:, 0]
            curiosity = actor_state.curiosity
            if mode == "random":
                curiosity = curiosity._replace(epsilon=jnp.ones_like(curiosity.epsilon))
            if allowed is not None:  # what was allowed when a whim began may be forbidden now
                curiosity = curiosity._replace(keep=jnp.zeros_like(curiosity.keep))
            whims = next_whims(whims, explore_key, drawn, curiosity)
            action = jnp.where(whims.rules, whims.action, best)
        extras = {"best_action": best, "from_proposal": self.search.from_proposal(found)}
        extras |= self._embedding.extras(actor_state.memory)
        memory = self._embedding.remember(memory, action)
        return Decision(action, extras), ActorMemory(actor_state.curiosity, memory, whims, actor_state.decisions + 1)

    def explain(
        self, params: ActingParams, actor_state: ActorState, key: jax.Array, now: TimeStep, action: jax.Array
    ) -> Thought:
        """The candidates' values, and the proposal if there is one."""
        search_key, _, _ = jax.random.split(key, 3)
        params = self._steady(params, actor_state)
        embedding, _ = self._embedding.act(params.network.torso, params.statistics, now, actor_state.memory)
        allowed = self.space.allowed(now.mask)
        found = self._find(params, search_key, embedding, allowed)
        proposed = self.search.from_proposal(found._replace(place=jnp.arange(found.values.shape[1])))
        proposal = self.search.conditionals(params.search, embedding, action, allowed)
        return Thought(proposal, scale(self.config).expand(found.values), proposed)

    def _steady(self, params: ActingParams, actor_state: ActorMemory) -> ActingParams:
        """What to be greedy with, for now."""
        if not params.averages:
            return params
        return params._replace(network=params.averages.at(actor_state.decisions[0], self.config.greedy_turn))

    def _find(
        self,
        params: ActingParams,
        key: jax.Array,
        embedding: jax.Array,
        allowed: jax.Array | None,
        optimism: float = 0.0,
    ) -> Found:
        """a* of states [B, E] for the actors."""
        score = functools.partial(self._evaluate(params.network.critics, embedding).score, optimism=optimism)
        return self.search(params.search, key, embedding, score, allowed=allowed)

    def update(self, state: QLearningState, key: jax.Array, unrolls: Unroll) -> tuple[QLearningState, Metrics]:
        """One step for the critics and one for the search, from unrolls [B, T+1]."""
        network = state.params.network
        target = state.target or network
        statistics = self._embedding.observe(state.params.statistics, unrolls.observation)

        def embed(torso: Params) -> jax.Array:
            return self._embedding.learn(torso, statistics, unrolls)  # [B, T+1, E]

        embedding, to_torso = jax.vjp(embed, network.torso)
        # Steps 1..T: step 0 is the last one of the unroll before.
        embedding_t = embedding[:, 1:].reshape(-1, embedding.shape[-1])
        target_t = embed(target.torso)[:, 1:].reshape(embedding_t.shape) if state.target else embedding_t
        allowed_t = self.space.allowed(unrolls.mask[:, 1:].reshape(len(embedding_t), unrolls.mask.shape[-1]))
        stored_t = {name: leaf[:, 1:].reshape(-1, *leaf.shape[2:]) for name, leaf in unrolls.extras.items()}
        evaluated = self._evaluate(target.critics, target_t)
        best_t, metrics = self._best_actions(state.params.search, key, embedding_t, evaluated, stored_t, allowed_t)
        action_t = unrolls.action[:, 1:].reshape(best_t.shape)
        v_t, q_t = (
            self._judge(evaluated.values(action)).reshape(unrolls.reward[:, 1:].shape) for action in (best_t, action_t)
        )
        targets = lambda_targets(self.config, unrolls, v_t, q_t)

        (critic_gradient, embedding_gradient), critic_metrics = self._critic_gradients(
            network.critics, embedding, statistics, unrolls, targets
        )
        (torso_gradient,) = to_torso(embedding_gradient)
        network, critic_optimiser = descend(
            self._value_optimiser, Network(torso_gradient, critic_gradient), state.critic_optimiser, network
        )
        search_gradient, search_metrics = jax.grad(self.search.loss, has_aux=True)(
            state.params.search, embedding_t, best_t, allowed_t
        )
        search, search_optimiser = descend(
            self._choice_optimiser, search_gradient, state.search_optimiser, state.params.search
        )
        new_params = ActingParams(network, search, statistics)
        new_state = QLearningState(
            new_params,
            follow(state.target, network, self.config.target_ema),
            averages.extend(state.averages, network) if state.averages else (),
            critic_optimiser,
            search_optimiser,
        )
        return new_state, metrics | search_metrics | critic_metrics

    def _best_actions(
        self,
        search: Params,
        key: jax.Array,
        embedding: jax.Array,
        evaluated: Evaluated,
        stored: dict[str, jax.Array],
        allowed: jax.Array | None,
    ) -> tuple[jax.Array, Metrics]:
        """a* of states [B, E]: the actors' own, or the best of those and a new search."""
        best, from_proposal = stored["best_action"], stored["from_proposal"]
        if self.config.fresh_search:
            found = self.learner_search(search, key, embedding, evaluated.score, known=best[:, None], allowed=allowed)
            best, from_proposal = found.action, self.learner_search.from_proposal(found)
        return best, {"share_from_proposal": jnp.mean(from_proposal.astype(jnp.float32))}


__all__ = ["ActingParams", "Network", "QLearning", "QLearningState"]
