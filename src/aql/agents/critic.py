"""What agents with critics share: the ensemble's values, its targets, its gradients."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from aql import losses, returns
from aql.agents.base import Metrics, Params
from aql.agents.networked import NetworkAgent
from aql.config import Config
from aql.experience import Unroll
from aql.networks import apply, torsos
from aql.networks.critics import Critic
from aql.scales import Scale
from aql.search.blocks import score_in_blocks


class Evaluated(NamedTuple):
    """States whose half of Q is computed, ready for any number of actions.

    Critics stay separate: as one batched product they are many times slower on a CPU.
    """

    critic: Critic
    params: tuple[Params, ...]
    states: tuple[jax.Array, ...]  # [B, H] of each critic

    def values(self, action: jax.Array) -> jax.Array:
        """What each critic says about one action [B, D] in each state, on its `Scale`: [critics, B]."""
        return self._of_each("value", action)

    def outputs(self, action: jax.Array) -> jax.Array:
        """The same, and after it what is predicted to follow: [critics, B, 1 + P]."""
        return self._of_each("outputs", action)

    def _of_each(self, method: str, action: jax.Array) -> jax.Array:
        pairs = zip(self.params, self.states, strict=True)
        return jnp.stack([apply(self.critic, params, state, action, method=method) for params, state in pairs])

    def score(self, candidates: jax.Array, optimism: float = 0.0) -> jax.Array:
        """What is said about candidates [B, C, D], or [1, C, D] for all states: [B, C].

        It is the critics' mean, and `optimism` times their deviation more.
        """

        def value(states: tuple[jax.Array, ...], candidates: jax.Array) -> jax.Array:
            pairs = zip(self.params, states, strict=True)
            q = [apply(self.critic, p, s[:, None], candidates, method="value") for p, s in pairs]
            mean = sum(q[1:], start=q[0]) / len(q)
            if optimism == 0:
                return mean
            return mean + optimism * jnp.sqrt(sum(jnp.square(each - mean) for each in q) / len(q))

        return score_in_blocks(value, self.states, candidates, width=self.states[0].shape[-1])


def scale(config: Config) -> Scale:
    """What critics learn Q on."""
    return Scale(highest_return(config), config.small_values)


def lambda_targets(config: Config, unrolls: Unroll, v_t: jax.Array, q_t: jax.Array) -> jax.Array:
    """[B, T] targets for Q at steps 0..T-1 of the unrolls [B, T+1].

    From the greedy values `v_t` [B, T] of the states reached and the values `q_t` [B, T] of what was done there.
    """
    lambda_t = lambdas(config, unrolls)
    if config.trace_tolerance:
        lambda_t *= returns.greedy_trace(q_t, v_t, config.trace_tolerance)
    targets = jax.vmap(returns.peng_q_lambda)(
        unrolls.reward[:, 1:], config.gamma * unrolls.discount[:, 1:], v_t, lambda_t
    )
    return jnp.minimum(targets, highest_return(config))


def highest_return(config: Config) -> float:
    """What no return exceeds, if it is known.

    A critic that promises more than that to actions never tried would believe itself, and Q grow for ever.
    """
    if not config.most_reward or config.gamma == 1:
        return math.inf
    return config.most_reward * config.action_repeat / (1 - config.gamma)


def lambdas(config: Config, unrolls: Unroll) -> jax.Array:
    """[B, T] lambda of steps 1..T, 0 where the step is its episode's last: where the next one is a first one."""
    first_t = unrolls.first[:, 1:]
    ends = jnp.concatenate([first_t[:, 1:], jnp.zeros_like(first_t[:, :1])], axis=1)
    return config.lambda_ * (1 - ends.astype(jnp.float32))


def follower(network: Any, step: float) -> Any:
    """A copy that will follow the network by steps of this size; empty if it would be the network itself."""
    return jax.tree.map(jnp.copy, network) if step < 1 else ()


def follow(slow: Any, network: Any, step: float) -> Any:
    """The copy after it has moved a little towards the network."""
    return optax.incremental_update(network, slow, step) if slow else ()


@dataclasses.dataclass(frozen=True)
class CriticAgent(NetworkAgent):
    """An agent with critics of state and action, and perhaps a target network."""

    @property
    def _critic(self) -> Critic:
        num_predictions = self._embedding.num_numbers + 1 if self.config.prediction_weight else 0
        return Critic(
            self.space,
            self.config.critic_layers,
            self.config.layer_norm,
            num_predictions,
            self.config.bias_unit,
            scale(self.config).small if self.config.curvature else None,
        )

    def _init_critics(self, key: jax.Array, embedding: jax.Array) -> tuple[Params, ...]:
        action = jnp.zeros((1, self.space.dimensions))
        return tuple(self._critic.init(k, embedding, action) for k in jax.random.split(key, self.config.num_critics))

    def _evaluate(self, critics: tuple[Params, ...], embedding: jax.Array) -> Evaluated:
        """The states' half of Q, for embeddings [..., E]."""
        states = tuple(apply(self._critic, p, embedding, method="state") for p in critics)
        return Evaluated(self._critic, critics, states)

    def _judge(self, said: jax.Array) -> jax.Array:
        """What critics say [critics, B] -> the Q that a target bootstraps with [B]."""
        return scale(self.config).expand(jnp.mean(said, axis=0) - self.config.pessimism * jnp.std(said, axis=0))

    def _critic_gradients(
        self,
        critics: tuple[Params, ...],
        embedding: jax.Array,
        statistics: torsos.Statistics,
        unrolls: Unroll,
        targets: jax.Array,
    ) -> tuple[tuple[tuple[Params, ...], jax.Array], Metrics]:
        """Gradients of the critics' loss for the critics and for the embeddings [B, T+1, E]; targets are [B, T]."""
        real = ~unrolls.first[:, 1:]
        happened = self._happened(statistics, unrolls)
        counts = scale(self.config)
        compressed = counts.compress(targets)

        def loss(critics: tuple[Params, ...], embedding: jax.Array) -> tuple[jax.Array, Metrics]:
            outputs = self._evaluate(critics, embedding[:, :-1]).outputs(unrolls.action[:, :-1])
            said, predicted = outputs[..., 0], outputs[..., 1:]
            td_loss = self.config.num_critics * losses.td_loss(said, compressed, real)
            q = counts.expand(said)
            metrics = {"critic_loss": td_loss, "q_mean": jnp.mean(q), "q_max": jnp.max(q)}
            if not self.config.prediction_weight:
                return td_loss, metrics
            error = losses.prediction_loss(predicted, happened, real)
            error_of_zeros = losses.prediction_loss(jnp.zeros_like(happened), happened, real)
            metrics["prediction_error"] = error / jnp.maximum(error_of_zeros, 1e-6)
            return td_loss + self.config.prediction_weight * losses.as_large_as(td_loss, error), metrics

        gradients, metrics = jax.grad(loss, argnums=(0, 1), has_aux=True)(critics, embedding)
        return gradients, metrics | {"target_mean": jnp.mean(targets)}

    def _happened(self, statistics: torsos.Statistics, unrolls: Unroll) -> jax.Array:
        """[B, T, P] what critics predict: how the numbers seen change, and the reward."""
        change = jnp.diff(self._embedding.numbers(statistics, unrolls.observation), axis=1)
        return jnp.concatenate([change, unrolls.reward[:, 1:, None]], axis=-1)
