"""Greedy evaluation on environments of its own."""

from collections.abc import Callable

import jax
import numpy as np

from aql.agents.base import Agent, Decision, Params, Thought
from aql.envs.base import TimeStep, VectorEnv
from aql.errors import UserError
from aql.runtime import seeding
from aql.runtime.actor import jit_act

LONGEST_EPISODE = 200_000  # decisions: one that is longer will hardly ever end


class StoppedError(Exception):
    """Episodes were given up, because the run is to end."""


class Evaluator:
    """Plays whole episodes with the greedy policy, one in each environment of its vector."""

    def __init__(
        self, agent: Agent, env: VectorEnv, seed: int, is_interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        self._agent = agent
        self._env = env
        self._seed = seed
        self._is_interrupted = is_interrupted
        self._decide = jit_act(agent)
        self._explain = jax.jit(agent.explain)
        self.success: float | None = None  # share of the latest episodes that reached their goal, if they all tell
        self.restart(0)

    def restart(self, actor_steps: int) -> None:
        """Makes what follows a function of the seed and the given step alone."""
        self._env_seed: int | None = seeding.integer(self._seed, "evaluate", actor_steps)
        self._key = seeding.key(self._seed, "evaluate", actor_steps)
        self._decisions = 0

    def evaluate(
        self, params: Params, watch: Callable[[TimeStep, Decision, Thought], None] | None = None
    ) -> np.ndarray:
        """The undiscounted returns [B] of one episode in each environment.

        `watch` is called with what is seen, what is decided and what was behind it, for films.
        """
        now = self._env.reset(self._env_seed)
        self._env_seed = None  # later evaluations continue the environments' own random streams
        actor_state = self._agent.init_actors(np.arange(self._env.num_envs), self._env.num_envs)
        returns = np.zeros(self._env.num_envs)
        success = np.full(self._env.num_envs, np.nan)
        playing = np.ones(self._env.num_envs, bool)
        began = self._decisions
        while playing.any():
            if self._is_interrupted():
                raise StoppedError
            if self._decisions - began >= LONGEST_EPISODE:
                raise UserError(
                    f"an episode of an evaluation has not ended after {LONGEST_EPISODE:,} decisions: give the "
                    "environment a time limit, gymnasium.wrappers.TimeLimit"
                )
            before, number = actor_state, np.uint32(self._decisions)
            decision, actor_state = self._decide(params, before, self._key, number, now, mode="greedy")
            if watch is not None:
                key = jax.random.fold_in(self._key, number)
                watch(now, decision, self._explain(params, before, key, now, decision.action))
            self._decisions += 1
            self._env.send(np.asarray(decision.action))
            now = self._env.receive()
            returns += np.where(playing, now.reward, 0)
            success = np.where(playing & now.last, getattr(self._env, "success", np.nan), success)
            playing &= ~now.last
        self.success = None if np.isnan(success).any() else float(success.mean())
        return returns
