"""What all agents here are made of: a state embedding, and two optimisers over what is built on it."""

import dataclasses
from typing import Any

import jax
import optax

from aql.actions import ActionSpace
from aql.agents.base import ActorState, EnvSpec, Params, Thought
from aql.agents.embedding import Embedding
from aql.config import Config
from aql.envs.base import TimeStep


@dataclasses.dataclass(frozen=True)
class NetworkAgent:
    """The half of an agent that does not depend on how it learns. `space` is what it chooses from."""

    config: Config
    env: EnvSpec
    space: ActionSpace

    @property
    def _embedding(self) -> Embedding:
        return Embedding(self.config, self.env, self.space)

    @property
    def _value_optimiser(self) -> optax.GradientTransformation:
        """Of Q or V, and of the torso with them."""
        return optax.adam(self.config.learning_rate)

    @property
    def _choice_optimiser(self) -> optax.GradientTransformation:
        """Of what proposes or chooses actions."""
        return optax.adam(self.config.proposal_learning_rate)

    def explain(
        self, params: Params, actor_state: ActorState, key: jax.Array, now: TimeStep, action: jax.Array
    ) -> Thought:
        """Nothing to tell."""
        return Thought()

    def _init_torso(self, key: jax.Array) -> tuple[Params, jax.Array]:
        """The torso's parameters, and an embedding [1, E] of the shape that all other networks are made for."""
        torso = self._embedding.init(jax.random.fold_in(key, 2))
        return torso, self._embedding.example(torso)


def descend(
    optimiser: optax.GradientTransformation, gradient: Params, state: optax.OptState, params: Params
) -> tuple[Any, optax.OptState]:
    """One step: the parameters and the optimiser's state after it."""
    updates, state = optimiser.update(gradient, state, params)
    return optax.apply_updates(params, updates), state
