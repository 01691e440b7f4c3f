"""A process that acts for a learner elsewhere: some of the logical actors, and what guards them. Knows no Ray."""

import dataclasses
import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import jax

from aql import agents, compile_cache, envs
from aql.agents.base import EnvSpec, Params
from aql.config import Config
from aql.experience import Unroll, concatenate
from aql.runtime import seeding
from aql.runtime.actor import Actor

START_SECONDS = 120.0  # more patience with a worker that still makes its environments and compiles


class Share(NamedTuple):
    """The logical actors of one worker: `size` of them, from `first` on."""

    first: int
    size: int


class Delivery(NamedTuple):
    """What a worker has to show for one call."""

    unrolls: Unroll | None  # new ones with replayed ones; None while its replay fills
    steps: int  # of all its actors together
    returns: list[float]  # of the episodes that ended
    version: int  # of the parameters that acted
    env_restarts: float | None  # processes of its environments that died and were replaced, if they have any


def share_out(actors: int, workers: int) -> list[Share]:
    """Neighbouring actors to each worker, as equally as possible."""
    ends = [actors * (worker + 1) // workers for worker in range(workers)]
    return [Share(first, end - first) for first, end in zip([0, *ends], ends, strict=False)]


def decisions_per_call(config: Config, share: Share) -> int:
    """How many decisions a worker makes before it delivers.

    Whole unrolls, and so many that one call of each worker feeds one call of the learner: what a call costs is small
    beside the updates that it pays for, and parameters are no older than they have to be.
    """
    needed = config.batch_size * config.updates_per_call / config.workers
    per_unroll_time = share.size * (1 + config.replayed_per_new)
    return config.unroll_length * max(1, round(needed / per_unroll_time))


class Worker:
    """Acts with the parameters it is given, in environments of its own."""

    def __init__(self, config: Config, share: Share, birth: int) -> None:
        """`birth` counts all workers that the run has ever started: each of them draws other random numbers."""
        use_one_cpu()
        compile_cache.enable()
        self._config = config
        self._timeout = config.worker_timeout
        self._patience = START_SECONDS
        self._share = share
        self._decisions = decisions_per_call(config, share)
        self._version = -1
        self._env_restarts = 0.0  # that were delivered
        self._params: Params = None
        with self._watched():
            env = envs.make_for(config, share.size, num_threads=1)
            agent = agents.make(config, EnvSpec.of(env))
            own = dataclasses.replace(config, seed=seeding.integer(config.seed, "birth", birth))
            self._actor = Actor(agent, env, own, share.first)

    def act(self, params: Params, version: int) -> Delivery:
        """Some steps in all environments, with the parameters after `version` updates."""
        if version != self._version:
            self._params, self._version = jax.device_put(params), version
        gathered = []
        with self._watched():
            for _ in range(self._decisions):
                self._actor.send(self._params, version)
                unrolls = self._actor.receive()
                if unrolls is not None:
                    gathered.append(unrolls)
        if gathered:
            self._patience = 0.0  # everything is compiled: the last function to be is that which follows random steps
        returns, self._actor.finished_returns = self._actor.finished_returns, []
        steps = self._decisions * self._share.size * self._config.action_repeat
        unrolls = concatenate(gathered) if gathered else None
        return Delivery(unrolls, steps, returns, version, self._new_env_restarts())

    def _new_env_restarts(self) -> float | None:
        count = self._actor.metrics().get("env_restarts")
        if count is None:
            return None
        before, self._env_restarts = self._env_restarts, count
        return count - before

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Ends the process if its block takes too long, and shows where every thread was.

        The watch needs no Python to run: it also ends what hangs in foreign code that holds the interpreter's lock.
        """
        # By its number: whoever runs the worker may have put an object without a file into the place of stderr.
        faulthandler.dump_traceback_later(self._timeout + self._patience, file=2, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def use_one_cpu() -> None:
    """Workers share machines, and their batches are small: a thread each, and no accelerator. Before JAX starts."""
    os.environ["PJRT_NPROC"] = "1"
    jax.config.update("jax_platforms", "cpu")
