"""From what actors see to the state embedding that an agent's networks share.

Numbers are normalised, images go through a network each, and whoever wants to remember gets an LSTM, which may also
hear of the last action and reward. On the Control Suite it is the identity, as in the paper.
"""

import dataclasses

import jax
import jax.numpy as jnp

from aql.actions import ActionSpace
from aql.agents.base import EnvSpec, Params
from aql.config import Config
from aql.envs.base import TimeStep
from aql.envs.observations import Parts
from aql.experience import Unroll
from aql.networks import apply, pixels, torsos

MEMORY = "memory"  # the name among the extras of an unroll
IMAGES = {"small": pixels.Patches, "resnet": pixels.ResNet}


@dataclasses.dataclass(frozen=True)
class Embedding:
    """What the agent's networks see. An actor's memory is one vector: the LSTM's state and the last action."""

    config: Config
    env: EnvSpec
    space: ActionSpace

    @property
    def _torso(self) -> pixels.Torso:
        network = IMAGES[self.config.image_torso]
        networks = tuple(network(self.config.embedding_size) for _ in self._parts.images)
        return pixels.Torso(networks, self.config.memory_size)

    @property
    def _parts(self) -> Parts:
        """The images and numbers of an observation."""
        return self.env.observation_parts or Parts.of(self.env.observation_shape, self.env.observation_dtype)

    @property
    def num_numbers(self) -> int:
        """n, the numbers in an observation that belong to no image."""
        return self._parts.numbers

    def numbers(self, statistics: torsos.Statistics, observation: jax.Array) -> jax.Array:
        """[B, T, n] of observations [B, T, *observation_shape], as the networks see them."""
        return self._split(statistics, observation)[1]

    def _split(self, statistics: torsos.Statistics, observation: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        """Images, and numbers as the networks see them."""
        images, numbers = self._parts.split(observation)
        return images, torsos.normalise(statistics, numbers) if self._normalises else numbers

    def _see(self, statistics: torsos.Statistics, observation: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        """Images, and numbers as in `_split`, and after them what is near 0 of each, magnified."""
        images, numbers = self._split(statistics, observation)
        if not self.config.magnification:
            return images, numbers
        _, plain = self._parts.split(observation)
        near = torsos.magnify(statistics, plain, self.config.magnification)
        return images, jnp.concatenate([numbers, near], axis=-1)

    @property
    def _normalises(self) -> bool:
        return self.config.normalise_observations and self._parts.numbers > 0

    @property
    def _action_size(self) -> int:
        return len(self.space.feature_owner) if self.config.see_last_action else 0

    @property
    def memory_length(self) -> int:
        """S, the numbers that an actor carries from step to step."""
        return 2 * self.config.memory_size + self._action_size

    def init(self, key: jax.Array) -> Params:
        """Parameters of the torso; none if it is the identity."""
        more = jnp.zeros((1, 1, self._action_size + bool(self._action_size)))
        observation = jnp.zeros((1, 1, *self.env.observation_shape), self.env.observation_dtype)
        images, numbers = self._see(self.init_statistics(), observation)
        state = jnp.zeros((1, 2 * self.config.memory_size))
        return self._torso.init(key, images, jnp.concatenate([numbers, more], axis=-1), jnp.zeros((1, 1), bool), state)

    def init_statistics(self) -> torsos.Statistics:
        """Of no observations."""
        return torsos.init_statistics((self._parts.numbers,) if self._normalises else ())

    def init_memory(self, num_actors: int) -> jax.Array:
        """[B, S] before the first step."""
        return jnp.zeros((num_actors, self.memory_length))

    def example(self, torso: Params) -> jax.Array:
        """[1, E] of the shape that the other networks are made for."""
        observation = jnp.zeros((1, *self.env.observation_shape), self.env.observation_dtype)
        one = jnp.ones(1)
        now = TimeStep(observation, one, one, first=one > 0, last=one < 0, mask=None)
        return self.act(torso, self.init_statistics(), now, self.init_memory(1))[0]

    def observe(self, statistics: torsos.Statistics, observation: jax.Array) -> torsos.Statistics:
        """The statistics with the numbers in observations [B, T, *observation_shape] counted in, if they are used."""
        if not self._normalises:
            return statistics
        _, numbers = self._parts.split(observation)
        return torsos.update_statistics(statistics, numbers.reshape(-1, self._parts.numbers))

    def act(
        self, torso: Params, statistics: torsos.Statistics, now: TimeStep, memory: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Embeddings [B, E] of what B actors see now, and their memories after it; see `remember`."""
        last_action = memory[:, 2 * self.config.memory_size :]
        embedding, state = self._embed(
            torso,
            statistics,
            now.observation[:, None],
            last_action[:, None],
            now.reward[:, None],
            now.first[:, None],
            memory[:, : 2 * self.config.memory_size],
        )
        return embedding[:, 0], jnp.concatenate([state, last_action], axis=-1)

    def remember(self, memory: jax.Array, action: jax.Array) -> jax.Array:
        """The memories with the actions [B, D] that were decided on."""
        if not self._action_size:
            return memory
        return jnp.concatenate([memory[:, : 2 * self.config.memory_size], self.space.encode(action)], axis=-1)

    def extras(self, memory: jax.Array) -> dict[str, jax.Array]:
        """What goes into the unrolls: the memories before the step, in half precision since each step has one."""
        return {MEMORY: memory.astype(jnp.float16)} if self.memory_length else {}

    def learn(self, torso: Params, statistics: torsos.Statistics, unrolls: Unroll) -> jax.Array:
        """Embeddings [B, T+1, E] of unrolls, from the memories at their start."""
        batch = unrolls.reward.shape[0]
        start = unrolls.extras[MEMORY][:, 0].astype(jnp.float32) if self.memory_length else self.init_memory(batch)
        size = 2 * self.config.memory_size
        last_action = start[:, None, size:]
        if self._action_size:
            last_action = jnp.concatenate([last_action, self.space.encode(unrolls.action[:, :-1])], axis=1)
        else:
            last_action = jnp.zeros((*unrolls.reward.shape, 0))
        return self._embed(
            torso, statistics, unrolls.observation, last_action, unrolls.reward, unrolls.first, start[:, :size]
        )[0]

    def _embed(
        self,
        torso: Params,
        statistics: torsos.Statistics,
        observation: jax.Array,
        last_action: jax.Array,
        reward: jax.Array,
        first: jax.Array,
        state: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """All with axes [B, T], but the LSTM's state [B, 2 * memory_size] before them."""
        images, numbers = self._see(statistics, observation)
        if self._action_size:  # a new episode has neither
            more = jnp.where(first[..., None], 0, jnp.concatenate([last_action, reward[..., None]], axis=-1))
            numbers = jnp.concatenate([numbers, more], axis=-1)
        return apply(self._torso, torso, images, numbers, first, state)
