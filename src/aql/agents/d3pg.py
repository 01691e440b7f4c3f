"""D3PG: a deterministic policy that climbs Q by its gradient, for continuous actions (Barth-Maron et al. 2018).

act      pi(s) + Ornstein-Uhlenbeck noise
Q        follows Peng's Q(lambda) targets that bootstrap with Q(s', pi(s'))
pi       follows the gradient of Q(s, pi(s)) through the action
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from aql import losses
from aql.agents.base import ActorState, Decision, Metrics, Mode, Params
from aql.agents.critic import CriticAgent, follow, follower, lambda_targets
from aql.agents.networked import descend
from aql.envs.base import TimeStep
from aql.errors import UserError
from aql.experience import Unroll
from aql.networks import apply, torsos
from aql.networks.policies import DeterministicPolicy


class ActingParams(NamedTuple):
    """What actors need."""

    torso: Params
    policy: Params
    statistics: torsos.Statistics


class Networks(NamedTuple):
    """What targets follow."""

    torso: Params
    critics: tuple[Params, ...]
    policy: Params


class ActorMemory(NamedTuple):
    """What each actor keeps from step to step."""

    noise: jax.Array  # [B, D]
    memory: jax.Array  # [B, S] see `Embedding`


class D3PGState(NamedTuple):
    """What learning changes."""

    params: Networks
    target: Networks | tuple[()]  # empty without target networks
    statistics: torsos.Statistics
    critic_optimiser: optax.OptState
    policy_optimiser: optax.OptState


@dataclasses.dataclass(frozen=True)
class D3PG(CriticAgent):
    """The agent."""

    def __post_init__(self) -> None:
        for d, choices in enumerate(self.space.num_choices):
            if choices > 0:
                raise UserError(
                    f"sub-action {d} is a choice among {choices}, and d3pg needs continuous ones only, because it "
                    "follows the gradient of Q through the action: use the agent `aql`, which needs none"
                )

    @property
    def summary(self) -> str:
        """The policy and the size of its action."""
        return f"deterministic policy with {self.space.dimensions} continuous sub-actions"

    @property
    def _policy(self) -> DeterministicPolicy:
        return DeterministicPolicy(self.space.dimensions, self.config.proposal_layers)

    def init(self, key: jax.Array) -> D3PGState:
        """Fresh parameters and optimisers."""
        critic_key, policy_key = jax.random.split(key)
        torso, embedding = self._init_torso(key)
        critics = self._init_critics(critic_key, embedding)
        params = Networks(torso, critics, self._policy.init(policy_key, embedding))
        return D3PGState(
            params=params,
            target=follower(params, self.config.target_ema),
            statistics=self._embedding.init_statistics(),
            critic_optimiser=self._value_optimiser.init((torso, critics)),
            policy_optimiser=self._choice_optimiser.init(params.policy),
        )

    def acting_params(self, state: D3PGState) -> ActingParams:
        """Torso, policy and observation statistics."""
        networks = state.target if self.config.act_with_target and state.target else state.params
        return ActingParams(networks.torso, networks.policy, state.statistics)

    def init_actors(self, index: np.ndarray, total: int) -> ActorState:
        """No noise and no memory at first."""
        noise = jnp.zeros((len(index), self.space.dimensions))
        return ActorMemory(noise, self._embedding.init_memory(len(index)))

    def act(
        self,
        params: ActingParams,
        actor_state: ActorState,
        key: jax.Array,
        now: TimeStep,
        mode: Mode,
    ) -> tuple[Decision, ActorState]:
        """The policy's action with the actor's noise, which begins anew with every episode."""
        noise_key, uniform_key = jax.random.split(key)
        embedding, memory = self._embedding.act(params.torso, params.statistics, now, actor_state.memory)
        best = apply(self._policy, params.policy, embedding)
        noise = self._next_noise(noise_key, jnp.where(now.first[:, None], 0, actor_state.noise))
        uniform = self.space.sample(uniform_key, best.shape[:1])
        action = {"greedy": best, "random": uniform, "explore": jnp.clip(best + noise, -1, 1)}[mode]
        extras = self._embedding.extras(actor_state.memory)
        return Decision(action, extras), ActorMemory(noise, self._embedding.remember(memory, action))

    def _next_noise(self, key: jax.Array, noise: jax.Array) -> jax.Array:
        """x + theta (0 - x) + sigma N(0, 1): a random walk that is drawn back to 0, so that it keeps its direction."""
        gaussian = jax.random.normal(key, noise.shape)
        return (1 - self.config.noise_theta) * noise + self.config.noise_sigma * gaussian

    def update(self, state: D3PGState, key: jax.Array, unrolls: Unroll) -> tuple[D3PGState, Metrics]:
        """One step for the critics and one for the policy, from unrolls [B, T+1]."""
        params = state.params
        target = state.target or params
        statistics = self._embedding.observe(state.statistics, unrolls.observation)

        def embed(torso: Params) -> jax.Array:
            return self._embedding.learn(torso, statistics, unrolls)  # [B, T+1, E]

        embedding, to_torso = jax.vjp(embed, params.torso)
        embedding_tm1, embedding_t = embedding[:, :-1], embed(target.torso)[:, 1:]
        evaluated_t = self._evaluate(target.critics, embedding_t)
        v_t = self._judge(evaluated_t.values(apply(self._policy, target.policy, embedding_t)))
        q_t = self._judge(evaluated_t.values(unrolls.action[:, 1:]))
        targets = lambda_targets(self.config, unrolls, v_t, q_t)

        def policy_loss(policy: Params) -> tuple[jax.Array, jax.Array]:
            effort = apply(self._policy, policy, embedding_tm1, method="effort")
            action = jnp.tanh(effort)
            q = self._evaluate(params.critics, embedding_tm1).values(action)
            return losses.deterministic_policy_loss(q, effort, self.config.effort_weight), action

        (critic_gradient, embedding_gradient), metrics = self._critic_gradients(
            params.critics, embedding, statistics, unrolls, targets
        )
        (torso, critics), critic_optimiser = descend(
            self._value_optimiser,
            (*to_torso(embedding_gradient), critic_gradient),
            state.critic_optimiser,
            (params.torso, params.critics),
        )
        (policy_loss_, action), gradient = jax.value_and_grad(policy_loss, has_aux=True)(params.policy)
        policy, policy_optimiser = descend(self._choice_optimiser, gradient, state.policy_optimiser, params.policy)
        new = Networks(torso, critics, policy)
        return D3PGState(
            params=new,
            target=follow(state.target, new, self.config.target_ema),
            statistics=statistics,
            critic_optimiser=critic_optimiser,
            policy_optimiser=policy_optimiser,
        ), metrics | {
            "policy_loss": policy_loss_,
            "saturated_share": jnp.mean(jnp.abs(action) > 0.99),
        }


__all__ = ["D3PG", "ActingParams", "D3PGState"]
