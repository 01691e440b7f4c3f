"""The actor's half of Algorithm 2: a vector of logical actors that act together and keep their own replay."""

import functools
from typing import Any, Protocol

import jax
import numpy as np

from aql.agents.base import ActorState, Agent, Decision, Mode, Params
from aql.config import Config
from aql.envs.base import TimeStep, VectorEnv
from aql.envs.wrappers import Finite
from aql.experience import Unroll, concatenate
from aql.metrics import EpisodeReturns
from aql.replay import Replay
from aql.runtime import seeding


class Actor:
    """Acts in all its environments at once and yields new unrolls with replayed ones.

    A step has two halves, so that the caller can learn while the physics runs: `send` decides and starts it,
    `receive` waits for it and gives what goes to the learner.
    """

    def __init__(self, agent: Agent, env: VectorEnv, config: Config, first_actor: int = 0) -> None:
        self._env = Finite(env)
        self._config = config
        self._index = np.arange(first_actor, first_actor + env.num_envs)
        self._agent = agent
        self._decide = jit_act(agent)
        self._key = seeding.key(config.seed, "act", first_actor)
        self._rng = seeding.generator(config.seed, "replay", first_actor)
        self._replay = Replay(env.num_envs, config.replay_capacity, config.unroll_length, config.aligned_replay)
        self._decisions = 0
        self.finished_returns: list[float] = []
        self.restart()

    @property
    def steps(self) -> int:
        """Actor steps taken, all actors together."""
        return self._decisions * self._env.num_envs * self._config.action_repeat

    @property
    def _random_steps_left(self) -> int:
        """Of all actors of the run, as if those elsewhere were as far as these. Below 0, learning has begun.

        Actors that begin with trained parameters do not act at random, but fill their replay all the same.
        """
        return self._config.random_steps - self._replay.steps * self._config.actors * self._config.action_repeat

    def restart(self) -> None:
        """Begins new episodes in all environments, as a function of the seed and the steps taken.

        Environments cannot be saved. A checkpoint restarts them, in the run that goes on as in one that resumes
        from it, and so both do the same. Unfinished episodes end as by a time limit.
        """
        seed = seeding.integer(self._config.seed, "env", int(self._index[0]), self._decisions)
        self._time_step: TimeStep = self._env.reset(seed)
        self._returns = EpisodeReturns(self._env.num_envs)
        self._actor_state: ActorState = self._agent.init_actors(self._index, self._config.actors)

    def send(self, params: Params, version: int = 0) -> None:
        """Decides in every environment and starts the step; the parameters have `version` updates behind them."""
        now = self._time_step
        mode: Mode = "random" if version == 0 and self._random_steps_left > 0 else "explore"
        decision, self._actor_state = self._decide(
            params,
            self._actor_state,
            self._key,
            np.uint32(self._decisions),
            now,
            mode=mode,
        )
        decision = jax.tree.map(np.asarray, decision)
        self._env.send(decision.action)
        step = Unroll(
            now.observation, decision.action, now.reward, now.discount, now.first, now.mask, extras=decision.extras
        )
        self._replay.add(step)

    def receive(self) -> Unroll | None:
        """Waits for the step; the unrolls that are ready for the learner, new ones with replayed ones, if any."""
        self._time_step = now = self._env.receive()
        self._decisions += 1
        self.finished_returns += self._returns.update(now.reward, now.first, now.last)
        if self._random_steps_left >= 0:
            return None
        new = self._replay.newest()
        if new is None or self._config.replayed_per_new == 0:
            return new
        unrolls = concatenate([new, self._replay.sample(self._rng, self._config.replayed_per_new)])
        # In random order, or a batch would hold the unrolls of a few neighbouring actors only.
        order = self._rng.permutation(len(unrolls.reward))
        return unrolls.map(lambda leaf: leaf[order])

    def metrics(self) -> dict[str, float]:
        """What the environments have to tell: how many of their processes died and were replaced, if they have any."""
        restarts = getattr(self._env, "restarts", None)
        return {} if restarts is None else {"env_restarts": restarts}

    def get_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values that a checkpoint needs; call `restart` after it."""
        recent = self.finished_returns[-self._env.num_envs :]  # metrics look no further back
        meta = {"steps": self.steps, "rng": self._rng.bit_generator.state, "returns": recent}
        return self._replay.get_state(), meta

    def set_state(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """The inverse of `get_state`. Of what workers saved, who keep no replay, it takes the rest."""
        if arrays:
            self._replay.set_state(arrays)
            self._rng.bit_generator.state = meta["rng"]
        self._decisions = meta["steps"] // (self._env.num_envs * self._config.action_repeat)
        self.finished_returns = list(meta["returns"])
        self.restart()


class Act(Protocol):
    """`Agent.act`, compiled; the key is folded with the number of the decision."""

    def __call__(
        self, params: Params, actor_state: ActorState, key: jax.Array, decision: np.uint32, now: TimeStep, mode: Mode
    ) -> tuple[Decision, ActorState]:
        """Decides for all actors."""
        ...


def jit_act(agent: Agent) -> Act:
    """`agent.act` compiled, with a key that is folded with the number of the decision."""

    @functools.partial(jax.jit, static_argnames="mode")
    def act(
        params: Params,
        actor_state: ActorState,
        key: jax.Array,
        decision: np.uint32,
        now: TimeStep,
        mode: Mode,
    ) -> tuple[Decision, ActorState]:
        return agent.act(params, actor_state, jax.random.fold_in(key, decision), now, mode)

    return act
