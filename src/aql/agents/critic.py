"""What agents with critics share: the ensemble's values, its targets, a step of descent."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from aql import returns
from aql.actions import ActionSpace
from aql.agents.base import Params
from aql.config import Config
from aql.experience import Unroll
from aql.networks import apply
from aql.networks.critics import Critic
from aql.search.blocks import score_in_blocks


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


def evaluate(critic: Critic, space: ActionSpace, critics: tuple[Params, ...], embedding: jax.Array) -> Evaluated:
    """The states' half of Q, for embeddings [B, E]."""
    states = tuple(apply(critic, p, embedding, method="state") for p in critics)
    return Evaluated(critic, space, critics, states)


def reduce(config: Config, q: jax.Array) -> jax.Array:
    """[critics, B] -> [B], what a target bootstraps with."""
    return jnp.min(q, axis=0) if config.target_critics == "min" else jnp.mean(q, axis=0)


def lambda_targets(config: Config, unrolls: Unroll, v_t: jax.Array) -> jax.Array:
    """[B, T] targets for Q at steps 0..T-1 of the unrolls [B, T+1], from the values [B, T] of the states reached."""
    return jax.vmap(returns.peng_q_lambda)(
        unrolls.reward[:, 1:], config.gamma * unrolls.discount[:, 1:], v_t, lambdas(config, unrolls)
    )


def lambdas(config: Config, unrolls: Unroll) -> jax.Array:
    """[B, T] lambda of steps 1..T, 0 where the step is its episode's last: where the next one is a first one."""
    first_t = unrolls.first[:, 1:]
    ends = jnp.concatenate([first_t[:, 1:], jnp.zeros_like(first_t[:, :1])], axis=1)
    return config.lambda_ * (1 - ends.astype(jnp.float32))


def descend(
    optimiser: optax.GradientTransformation, gradient: Params, state: optax.OptState, params: Params
) -> tuple[Any, optax.OptState]:
    """One step: the parameters and the optimiser's state after it."""
    updates, state = optimiser.update(gradient, state, params)
    return optax.apply_updates(params, updates), state
