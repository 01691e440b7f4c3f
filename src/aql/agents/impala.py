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
from aql.actions import ActionSpace
from aql.agents.base import ActorState, Decision, EnvSpec, Metrics, Mode, Params
from aql.agents.critic import descend, lambdas
from aql.agents.embedding import embed, observe
from aql.config import Config
from aql.envs.base import TimeStep
from aql.experience import Unroll
from aql.networks import apply, torsos
from aql.networks.critics import Value
from aql.networks.proposals import Proposal


class ActingParams(NamedTuple):
    """What actors need."""

    policy: Params
    statistics: torsos.Statistics


class ImpalaState(NamedTuple):
    """What learning changes."""

    params: ActingParams
    value: Params
    policy_optimiser: optax.OptState
    value_optimiser: optax.OptState


@dataclasses.dataclass(frozen=True)
class Impala:
    """The agent. `policy` is the same kind of distribution that proposes candidates to the value-based agents."""

    config: Config
    env: EnvSpec
    space: ActionSpace
    policy: Proposal

    @property
    def summary(self) -> str:
        """The policy and the size of what it chooses from."""
        return f"stochastic policy over {self.space.describe_size()} actions"

    @property
    def _value(self) -> Value:
        return Value(self.config.critic_layers, self.config.layer_norm)

    @property
    def _policy_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.proposal_learning_rate)

    @property
    def _value_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)

    def init(self, key: jax.Array) -> ImpalaState:
        """Fresh parameters and optimisers."""
        policy_key, value_key = jax.random.split(key)
        statistics = torsos.init_statistics(self.env.observation_shape)
        embedding = embed(self.config, self.env, statistics, jnp.zeros((1, *self.env.observation_shape)))
        no_action = jnp.zeros((1, self.space.dimensions))
        policy = self.policy.init(policy_key, embedding, no_action, method="likelihood")
        value = self._value.init(value_key, embedding)
        return ImpalaState(
            params=ActingParams(policy, statistics),
            value=value,
            policy_optimiser=self._policy_optimiser.init(policy),
            value_optimiser=self._value_optimiser.init(value),
        )

    def acting_params(self, state: ImpalaState) -> ActingParams:
        """Policy and observation statistics."""
        return state.params

    def init_actors(self, index: np.ndarray, total: int) -> ActorState:
        """Actors are alike: the policy itself explores."""
        return ()

    def act(
        self,
        params: ActingParams,
        actor_state: ActorState,
        key: jax.Array,
        now: TimeStep,
        mode: Mode,
    ) -> tuple[Decision, ActorState]:
        """A sample of the policy, or its mode if greedy; the learner wants to know how likely it was."""
        embedding = embed(self.config, self.env, params.statistics, now.observation)
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
        return Decision(action, {"log_prob": log_prob}), actor_state

    def update(self, state: ImpalaState, key: jax.Array, unrolls: Unroll) -> tuple[ImpalaState, Metrics]:
        """One step for the value and one for the policy, from unrolls [B, T+1]."""
        # Ratios compare the policy with what the actors had, so the statistics that it sees are theirs, too.
        embedding = embed(self.config, self.env, state.params.statistics, unrolls.observation)  # [B, T+1, E]
        embedding_tm1, action_tm1 = embedding[:, :-1], unrolls.action[:, :-1]
        allowed_tm1 = self.space.allowed(unrolls.mask[:, :-1])
        is_transition = ~unrolls.first[:, 1:]

        def loss(params: tuple[Params, Params]) -> tuple[jax.Array, Metrics]:
            policy, value = params
            v = apply(self._value, value, embedding)
            likelihood = apply(self.policy, policy, embedding_tm1, action_tm1, allowed_tm1, method="likelihood")
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
                likelihood.log_prob, vtrace.advantage_tm1, likelihood.entropy, is_transition, self.config.entropy_weight
            )
            return policy_loss + value_loss, {
                "value_loss": value_loss,
                "policy_loss": policy_loss,
                "policy_entropy": losses.masked_mean(likelihood.entropy, is_transition),
                "value_mean": jnp.mean(v),
                "ratio_mean": losses.masked_mean(rho, is_transition),
            }

        (policy_gradient, value_gradient), metrics = jax.grad(loss, has_aux=True)((state.params.policy, state.value))
        policy, policy_optimiser = descend(
            self._policy_optimiser, policy_gradient, state.policy_optimiser, state.params.policy
        )
        value, value_optimiser = descend(self._value_optimiser, value_gradient, state.value_optimiser, state.value)
        statistics = observe(self.config, self.env, state.params.statistics, unrolls.observation)
        return ImpalaState(ActingParams(policy, statistics), value, policy_optimiser, value_optimiser), metrics


__all__ = ["ActingParams", "Impala", "ImpalaState"]
