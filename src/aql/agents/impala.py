"""IMPALA: a stochastic policy and a value, corrected by V-trace for what has changed since (Espeholt et al. 2018).

act      a ~ pi(. | s); its log-likelihood goes along
V        follows V-trace's targets
pi       follows the policy gradient with V-trace's advantages, and an entropy bonus
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from aql import losses, returns
from aql.agents.base import ActorState, Decision, Metrics, Mode, Params, Thought
from aql.agents.critic import lambdas
from aql.agents.networked import NetworkAgent, descend
from aql.envs.base import TimeStep
from aql.experience import Unroll
from aql.networks import apply, torsos
from aql.networks.critics import Value
from aql.networks.proposals import Proposal


class ActingParams(NamedTuple):
    """What actors need."""

    torso: Params
    policy: Params
    statistics: torsos.Statistics


class ImpalaState(NamedTuple):
    """What learning changes. The torso learns with the value, from both losses."""

    params: ActingParams
    value: Params
    policy_optimiser: optax.OptState
    value_optimiser: optax.OptState


@dataclasses.dataclass(frozen=True)
class Impala(NetworkAgent):
    """The agent. `policy` is the same kind of distribution that proposes candidates to the value-based agents."""

    policy: Proposal

    @property
    def summary(self) -> str:
        """The policy and the size of what it chooses from."""
        return f"stochastic policy over {self.space.describe_size()} actions"

    @property
    def _value(self) -> Value:
        return Value(self.config.critic_layers, self.config.layer_norm)

    def init(self, key: jax.Array) -> ImpalaState:
        """Fresh parameters and optimisers."""
        policy_key, value_key = jax.random.split(key)
        torso, embedding = self._init_torso(key)
        no_action = jnp.zeros((1, self.space.dimensions))
        policy = self.policy.init(policy_key, embedding, no_action, method="likelihood")
        value = self._value.init(value_key, embedding)
        return ImpalaState(
            params=ActingParams(torso, policy, self._embedding.init_statistics()),
            value=value,
            policy_optimiser=self._choice_optimiser.init(policy),
            value_optimiser=self._value_optimiser.init((torso, value)),
        )

    def acting_params(self, state: ImpalaState) -> ActingParams:
        """Torso, policy and observation statistics."""
        return state.params

    def init_actors(self, index: np.ndarray, total: int) -> ActorState:
        """Actors are alike but for what they remember: the policy itself explores."""
        return self._embedding.init_memory(len(index))

    def act(
        self,
        params: ActingParams,
        actor_state: ActorState,
        key: jax.Array,
        now: TimeStep,
        mode: Mode,
    ) -> tuple[Decision, ActorState]:
        """A sample of the policy, or its mode if greedy; the learner wants to know how likely it was."""
        embedding, memory = self._embedding.act(params.torso, params.statistics, now, actor_state)
        allowed = self.space.allowed(now.mask)
        if mode == "random":
            action = self.space.sample(key, (len(embedding), 1), allowed)[:, 0]
            log_prob = self.space.uniform_log_prob(action.shape[:1], allowed)
        else:
            if mode == "greedy":
                action = apply(self.policy, params.policy, embedding, allowed, method="mode")
            else:
                action = apply(self.policy, params.policy, embedding, key, 1, allowed, method="sample")[:, 0]
            log_prob = apply(self.policy, params.policy, embedding, action, allowed, method="likelihood").log_prob
        extras = {"log_prob": log_prob} | self._embedding.extras(actor_state)
        return Decision(action, extras), self._embedding.remember(memory, action)

    def explain(
        self, params: ActingParams, actor_state: ActorState, key: jax.Array, now: TimeStep, action: jax.Array
    ) -> Thought:
        """The policy."""
        embedding, _ = self._embedding.act(params.torso, params.statistics, now, actor_state)
        allowed = self.space.allowed(now.mask)
        return Thought(apply(self.policy, params.policy, embedding, action, allowed, method="conditionals"))

    def update(self, state: ImpalaState, key: jax.Array, unrolls: Unroll) -> tuple[ImpalaState, Metrics]:
        """One step for the value and one for the policy, from unrolls [B, T+1]."""
        # Ratios compare the policy with what the actors had, so the statistics that it sees are theirs, too.
        action_tm1 = unrolls.action[:, :-1]
        allowed_tm1 = self.space.allowed(unrolls.mask[:, :-1])
        is_transition = ~unrolls.first[:, 1:]

        def loss(policy: Params, torso_and_value: tuple[Params, Params]) -> tuple[jax.Array, Metrics]:
            torso, value = torso_and_value
            embedding = self._embedding.learn(torso, state.params.statistics, unrolls)  # [B, T+1, E]
            v = apply(self._value, value, embedding)
            likelihood = apply(self.policy, policy, embedding[:, :-1], action_tm1, allowed_tm1, method="likelihood")
            rho = jnp.exp(likelihood.log_prob - unrolls.extras["log_prob"][:, :-1])
            vtrace = jax.vmap(returns.vtrace)(
                v[:, :-1],
                v[:, 1:],
                unrolls.reward[:, 1:],
                self.config.gamma * unrolls.discount[:, 1:],
                rho,
                lambdas(self.config, unrolls),
            )
            value_loss = losses.td_loss(v[:, :-1], vtrace.target_tm1, is_transition)
            policy_loss = losses.policy_gradient_loss(
                likelihood.log_prob,
                vtrace.advantage_tm1,
                likelihood.entropy,
                is_transition,
                self.config.policy_entropy_weight,
            )
            return policy_loss + value_loss, {
                "value_loss": value_loss,
                "policy_loss": policy_loss,
                "policy_entropy": losses.masked_mean(likelihood.entropy, is_transition),
                "value_mean": jnp.mean(v),
                "ratio_mean": losses.masked_mean(rho, is_transition),
            }

        torso_and_value = (state.params.torso, state.value)
        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (policy_gradient, value_gradient), metrics = differentiate(state.params.policy, torso_and_value)
        policy, policy_optimiser = descend(
            self._choice_optimiser, policy_gradient, state.policy_optimiser, state.params.policy
        )
        (torso, value), value_optimiser = descend(
            self._value_optimiser, value_gradient, state.value_optimiser, torso_and_value
        )
        statistics = self._embedding.observe(state.params.statistics, unrolls.observation)
        return ImpalaState(ActingParams(torso, policy, statistics), value, policy_optimiser, value_optimiser), metrics


__all__ = ["ActingParams", "Impala", "ImpalaState"]
