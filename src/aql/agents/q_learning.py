"""Q-learning with a search in place of the maximum: AQL, Uniform Q, QT-Opt and exact Q are this one agent.

a*(s)  = search of argmax_a Q(s, a)
act      a*(s), epsilon-greedy
Q        follows Peng's Q(lambda) targets that bootstrap with Q(s', a*(s'))
search   learns to find a*(s), if it can learn
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from aql import losses, returns
from aql.actions import ActionSpace
from aql.agents.base import ActorState, Decision, EnvSpec, Metrics, Mode, Params
from aql.config import Config
from aql.envs.base import TimeStep
from aql.experience import Unroll
from aql.networks import apply, torsos
from aql.networks.critics import Critic
from aql.search import Search
from aql.search.blocks import score_in_blocks


class ActingParams(NamedTuple):
    """What actors need."""

    critics: tuple[Params, ...]
    search: Params
    statistics: torsos.Statistics


class QLearningState(NamedTuple):
    """What learning changes."""

    params: ActingParams
    target_critics: tuple[Params, ...]  # empty without a target network
    critic_optimiser: optax.OptState
    search_optimiser: optax.OptState


@dataclasses.dataclass(frozen=True)
class QLearning:
    """The agent. `search` serves the actors, `learner_search` (the same with fewer candidates) the learner."""

    config: Config
    env: EnvSpec
    space: ActionSpace
    search: Search
    learner_search: Search

    @property
    def summary(self) -> str:
        """The search and the size of what it searches."""
        return f"{type(self.search).__name__.lower()} search in {self.space.describe_size()} actions"

    @property
    def _critic(self) -> Critic:
        return Critic(self.config.critic_layers, self.config.layer_norm)

    @property
    def _critic_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)

    @property
    def _search_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.proposal_learning_rate)

    def init(self, key: jax.Array) -> QLearningState:
        """Fresh parameters and optimisers."""
        critic_key, search_key = jax.random.split(key)
        statistics = torsos.init_statistics(self.env.observation_shape)
        embedding = self._embed(statistics, jnp.zeros((1, *self.env.observation_shape)))
        features = self.space.encode(jnp.zeros((1, self.space.dimensions)))
        critics = tuple(
            self._critic.init(k, embedding, features) for k in jax.random.split(critic_key, self.config.num_critics)
        )
        search = self.search.init(search_key, embedding)
        return QLearningState(
            params=ActingParams(critics, search, statistics),
            target_critics=jax.tree.map(jnp.copy, critics) if self._has_target else (),
            critic_optimiser=self._critic_optimiser.init(critics),
            search_optimiser=self._search_optimiser.init(search),
        )

    def acting_params(self, state: QLearningState) -> ActingParams:
        """Critics, proposal and observation statistics."""
        if self.config.act_with_target and self._has_target:
            return state.params._replace(critics=state.target_critics)
        return state.params

    def init_actors(self, index: np.ndarray, total: int) -> ActorState:
        """Each actor's epsilon (Horgan et al. 2018; the paper's first tenth of the actors explores more)."""
        low, high = self.config.epsilon_low, self.config.epsilon_high
        if self.config.epsilon_spacing == "tenth":
            return jnp.where(jnp.asarray(index) < max(1, total // 10), high, low).astype(jnp.float32)
        fraction = jnp.asarray(index) / max(1, total - 1)
        return (low ** (1 - fraction) * high**fraction).astype(jnp.float32) if low > 0 else fraction * high

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
        embedding = self._embed(params.statistics, now.observation)
        allowed = self.space.allowed(now.mask)
        score = self._evaluate(params.critics, embedding).score
        found = self.search(params.search, search_key, embedding, score, allowed=allowed)
        best = found.action
        uniform = self.space.sample(uniform_key, (len(best), 1), allowed)[:, 0]
        shape = best.shape if self.config.epsilon_per_subaction else (best.shape[0], 1)
        explores = jax.random.uniform(explore_key, shape) < actor_state[:, None]
        action = {"greedy": best, "random": uniform, "explore": jnp.where(explores, uniform, best)}[mode]
        extras = {"best_action": best, "from_proposal": self.search.from_proposal(found)}
        return Decision(action, extras), actor_state

    def update(self, state: QLearningState, key: jax.Array, unrolls: Unroll) -> tuple[QLearningState, Metrics]:
        """One step for the critics and one for the search, from unrolls [B, T+1]."""
        statistics = state.params.statistics
        if self.config.normalise_observations:
            flat = unrolls.observation.reshape(-1, *self.env.observation_shape)
            statistics = torsos.update_statistics(statistics, flat)
        embedding = self._embed(statistics, unrolls.observation)  # [B, T+1, E]
        # Steps 1..T: step 0 is the last one of the unroll before.
        embedding_t = embedding[:, 1:].reshape(-1, embedding.shape[-1])
        allowed_t = self.space.allowed(unrolls.mask[:, 1:].reshape(len(embedding_t), unrolls.mask.shape[-1]))
        stored_t = {name: leaf[:, 1:].reshape(-1, *leaf.shape[2:]) for name, leaf in unrolls.extras.items()}
        target_critics = state.target_critics if self._has_target else state.params.critics
        evaluated = self._evaluate(target_critics, embedding_t)
        best_t, metrics = self._best_actions(state.params.search, key, embedding_t, evaluated, stored_t, allowed_t)
        v_t = self._reduce(evaluated.values(best_t)).reshape(unrolls.reward[:, 1:].shape)
        targets = jax.vmap(returns.peng_q_lambda)(
            unrolls.reward[:, 1:],
            self.config.gamma * unrolls.discount[:, 1:],
            v_t,
            self.config.lambda_ * (1 - _ends(unrolls.first[:, 1:])),
        )

        def critic_loss(critics: tuple[Params, ...]) -> tuple[jax.Array, jax.Array]:
            features = self.space.encode(unrolls.action[:, :-1])
            q = jnp.stack([apply(self._critic, p, embedding[:, :-1], features) for p in critics])
            return self.config.num_critics * losses.td_loss(q, targets, ~unrolls.first[:, 1:]), q

        (loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.params.critics)
        critics, critic_optimiser = _descend(
            self._critic_optimiser, gradient, state.critic_optimiser, state.params.critics
        )
        search_gradient, search_metrics = jax.grad(self.search.loss, has_aux=True)(
            state.params.search, embedding_t, best_t, allowed_t
        )
        search, search_optimiser = _descend(
            self._search_optimiser, search_gradient, state.search_optimiser, state.params.search
        )
        target = optax.incremental_update(critics, target_critics, self.config.target_ema) if self._has_target else ()
        metrics |= search_metrics | {
            "critic_loss": loss,
            "q_mean": jnp.mean(q),
            "q_max": jnp.max(q),
            "target_mean": jnp.mean(targets),
        }
        new_params = ActingParams(critics, search, statistics)
        return QLearningState(new_params, target, critic_optimiser, search_optimiser), metrics

    @property
    def _has_target(self) -> bool:
        return self.config.target_ema < 1

    def _embed(self, statistics: torsos.Statistics, observation: jax.Array) -> jax.Array:
        """[..., *observation_shape] -> [..., E]: the identity on the Control Suite, normalised if wished."""
        if self.config.normalise_observations:
            observation = torsos.normalise(statistics, observation)
        leading = observation.shape[: observation.ndim - len(self.env.observation_shape)]
        return observation.reshape(*leading, -1)

    def _evaluate(self, critics: tuple[Params, ...], embedding: jax.Array) -> "Evaluated":
        states = tuple(apply(self._critic, p, embedding, method="state") for p in critics)
        return Evaluated(self._critic, self.space, critics, states)

    def _best_actions(
        self,
        search: Params,
        key: jax.Array,
        embedding: jax.Array,
        evaluated: "Evaluated",
        stored: dict[str, jax.Array],
        allowed: jax.Array | None,
    ) -> tuple[jax.Array, Metrics]:
        """a* of states [B, E]: the actors' own, or the best of those and a new search."""
        best, from_proposal = stored["best_action"], stored["from_proposal"]
        if self.config.fresh_search:
            found = self.learner_search(search, key, embedding, evaluated.score, known=best[:, None], allowed=allowed)
            best, from_proposal = found.action, self.learner_search.from_proposal(found)
        return best, {"share_from_proposal": jnp.mean(from_proposal.astype(jnp.float32))}

    def _reduce(self, q: jax.Array) -> jax.Array:
        """[critics, B] -> [B], what a target bootstraps with."""
        return jnp.min(q, axis=0) if self.config.target_critics == "min" else jnp.mean(q, axis=0)


class Evaluated(NamedTuple):
    """States whose half of Q is computed, ready for any number of actions.

    Critics stay separate: as one batched product they are many times slower on a CPU.
    """

    critic: Critic
    space: ActionSpace
    params: tuple[Params, ...]
    states: tuple[jax.Array, ...]  # [B, H] of each critic

    def values(self, action: jax.Array) -> jax.Array:
        """Q of one action [B, D] in each state, by each critic: [critics, B]."""
        features = self.space.encode(action)
        q = [apply(self.critic, p, s, features, method="value") for p, s in zip(self.params, self.states, strict=True)]
        return jnp.stack(q)

    def score(self, candidates: jax.Array) -> jax.Array:
        """The critics' mean Q of candidates [B, C, D]: [B, C]."""

        def mean_value(states: tuple[jax.Array, ...], candidates: jax.Array) -> jax.Array:
            features = self.space.encode(candidates)
            pairs = zip(self.params, states, strict=True)
            q = [apply(self.critic, p, s[:, None], features, method="value") for p, s in pairs]
            return sum(q[1:], start=q[0]) / len(q)

        return score_in_blocks(mean_value, self.states, candidates, width=self.states[0].shape[-1])


def _ends(first_t: jax.Array) -> jax.Array:
    """[B, T] 1 where the step is its episode's last, that is, where the next one is a first one."""
    return jnp.concatenate([first_t[:, 1:], jnp.zeros_like(first_t[:, :1])], axis=1).astype(jnp.float32)


def _descend(
    optimiser: optax.GradientTransformation, gradient: Params, state: optax.OptState, params: Params
) -> tuple[Any, optax.OptState]:
    updates, state = optimiser.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


__all__ = ["ActingParams", "QLearning", "QLearningState"]
