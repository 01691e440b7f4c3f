"""Single environments that step at the same time, in threads."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from aql.envs.base import TimeStep
from aql.envs.serial import Outcome, SerialVector, SingleEnv, spread_seed


class ThreadedVector(SerialVector):
    """A `VectorEnv` of single environments that wait for something outside of Python, such as a game's process.

    What an environment does depends on its own actions and seeds alone, so that the order of threads does not matter.
    """

    def __init__(self, envs: Sequence[SingleEnv], num_threads: int | None = None) -> None:
        super().__init__(envs)
        # A thread waits while its game computes: twice as many as cores keep the cores busy.
        workers = min(self.num_envs, num_threads or 2 * (os.cpu_count() or 1))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="env")
        self._pending: list[Future[Outcome]] = []

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments, as a function of the seed alone if there is one."""
        self._wait()
        seeds = [None] * self.num_envs if seed is None else spread_seed(seed, self.num_envs)
        self._pending = [self._pool.submit(env.reset, s) for env, s in zip(self._envs, seeds, strict=True)]
        return self._stack(self._wait(), first=np.ones(self.num_envs, bool))

    def send(self, action: np.ndarray) -> None:
        """Starts a step with the actions [B, D]; an environment whose episode is over starts the next."""
        action = np.array(action)
        self._pending = [
            self._pool.submit(env.reset, None) if over else self._pool.submit(env.step, a)
            for env, over, a in zip(self._envs, self._last, action, strict=True)
        ]

    def receive(self) -> TimeStep:
        """Waits for the step."""
        assert self._pending, "receive without send"
        first = self._last
        return self._stack(self._wait(), first)

    def close(self) -> None:
        """Closes every environment, once, after what they were doing."""
        self._pool.shutdown(wait=True)
        super().close()

    def _wait(self) -> list[Outcome]:
        pending, self._pending = self._pending, []
        return [future.result() for future in pending]
