"""What the runtime asks of an agent: a few pure functions. Actor and learner know nothing else about it."""

from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from aql.actions import ActionSpace
from aql.envs.base import TimeStep, VectorEnv
from aql.envs.observations import Parts
from aql.experience import Unroll
from aql.networks.proposals import Conditionals

Params = Any
ActorState = Any
LearnerState = Any
Metrics = dict[str, jax.Array]
Mode = Literal["explore", "greedy", "random"]


class EnvSpec(NamedTuple):
    """What an agent has to know about the environment."""

    observation_shape: tuple[int, ...]
    action_space: ActionSpace
    observation_dtype: np.dtype = np.dtype(np.float32)
    observation_parts: Parts | None = None

    @classmethod
    def of(cls, env: VectorEnv) -> "EnvSpec":
        """Read off the environment."""
        seen = env.observations
        return cls(seen.shape, env.action_space, seen.dtype, seen.parts)


class Decision(NamedTuple):
    """What to do in B states, and what the learner will want to know about it."""

    action: jax.Array  # [B, D]
    extras: dict[str, jax.Array]  # [B, ...]


class Thought(NamedTuple):
    """What an agent had in mind when it decided in B states; None for what it does not have."""

    proposal: Conditionals | None = None  # of a proposal, or of a policy, on the way to the actions decided on
    values: jax.Array | None = None  # [B, C] Q of the candidates
    proposed: jax.Array | None = None  # [C] bool, which candidates came from the proposal


class Agent(Protocol):
    """Pure: state and keys go in and come out."""

    @property
    def space(self) -> ActionSpace:
        """The actions it chooses from: the environment's, discretised if the agent does that."""
        ...

    @property
    def summary(self) -> str:
        """A few words on how it chooses among how many actions."""
        ...

    def init(self, key: jax.Array) -> LearnerState:
        """All that learning changes: parameters, optimisers, statistics."""
        ...

    def acting_params(self, state: LearnerState) -> Params:
        """The part of the learner's state that actors need."""
        ...

    def init_actors(self, index: np.ndarray, total: int) -> ActorState:
        """The state of the actors with the given places [B] among `total`: their curiosity, noise, memory."""
        ...

    def act(
        self,
        params: Params,
        actor_state: ActorState,
        key: jax.Array,
        now: TimeStep,
        mode: Mode,
    ) -> tuple[Decision, ActorState]:
        """Decides for what B environments show now."""
        ...

    def explain(
        self, params: Params, actor_state: ActorState, key: jax.Array, now: TimeStep, action: jax.Array
    ) -> Thought:
        """What was behind the actions [B, D] that `act` decided on, with the same arguments."""
        ...

    def update(self, state: LearnerState, key: jax.Array, unrolls: Unroll) -> tuple[LearnerState, Metrics]:
        """One step of learning from a batch of unrolls."""
        ...
