"""Actor and learner in one process: the default, deterministic."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aql import agents, envs
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.evaluation import Evaluator
from aql.metrics import MetricsWriter, Progress
from aql.runtime import checkpoint
from aql.runtime.actor import Actor
from aql.runtime.learner import Learner

KEPT_CHECKPOINTS = 2


class Result(NamedTuple):
    """How a run ended: its last greedy evaluation."""

    mean: float
    std: float
    episodes: int
    actor_steps: int
    seconds: float


def check(config: Config) -> None:
    """Raises if the environment or the agent cannot be made, before anything is written."""
    env = envs.make(config.env, 1)
    agents.make(config, EnvSpec(env.observation_shape, env.action_space))
    env.close()


def train(config: Config, run: Path, resume: bool = False, quiet: bool = False) -> Result:
    """Trains until `config.steps`, writing into the folder `run`.

    An interrupt or a termination signal saves a checkpoint before it ends the run.
    """
    with ExitStack() as stack:
        env = envs.make(config.env, config.actors)
        stack.callback(env.close)
        eval_env = envs.make(config.env, config.eval_episodes)
        stack.callback(eval_env.close)
        agent = agents.make(config, EnvSpec(env.observation_shape, env.action_space))
        actor, learner = Actor(agent, env, config), Learner(agent, config)
        evaluator = Evaluator(agent, eval_env, config.seed)
        writer = stack.enter_context(MetricsWriter(run))
        loop = _Loop(config, run, actor, learner, evaluator, writer)
        if resume:
            loop.load()
        progress = stack.enter_context(Progress(config.steps, actor.steps, quiet=quiet))
        return loop.run(progress)


class _Loop:
    """The rhythm of a run: act and learn, and now and then report, evaluate and save."""

    def __init__(
        self,
        config: Config,
        run: Path,
        actor: Actor,
        learner: Learner,
        evaluator: Evaluator,
        writer: MetricsWriter,
    ) -> None:
        self._config = config
        self._run = run
        self._actor = actor
        self._learner = learner
        self._evaluator = evaluator
        self._writer = writer
        self._seconds_before = 0.0  # of the processes that this one resumes
        self._started = time.monotonic()
        self._result: Result | None = None

    def run(self, progress: Progress) -> Result:
        with _stop_signals() as stopped:
            while self._actor.steps < self._config.steps:
                before = self._actor.steps
                self._step()
                steps = self._actor.steps
                done = steps >= self._config.steps
                if done or self._passed(before, steps, self._config.log_every):
                    self._report(steps)
                if done or self._passed(before, steps, self._config.eval_every):
                    self._evaluate(steps)
                if done or stopped.is_set() or self._passed(before, steps, self._config.checkpoint_every):
                    self._save(steps)
                progress.update(steps, self._recent_return, self._result.mean if self._result else None)
                if stopped.is_set():
                    raise KeyboardInterrupt
        return self._result or self._evaluate(self._actor.steps)

    def _step(self) -> None:
        self._actor.send(self._learner.params)
        self._learner.learn()  # while the physics runs
        unrolls = self._actor.receive()
        if unrolls is not None:
            self._learner.add(unrolls)

    @staticmethod
    def _passed(before: int, after: int, every: int) -> bool:
        return before // every != after // every

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started

    @property
    def _recent_return(self) -> float | None:
        recent = self._actor.finished_returns[-self._config.actors :]
        return float(np.mean(recent)) if recent else None

    def _report(self, steps: int) -> None:
        metrics = {name: float(value) for name, value in self._learner.metrics.items()}
        self._writer.write(
            steps,
            seconds=self._seconds,
            updates=self._learner.updates,
            return_mean=self._recent_return,
            **metrics,
        )

    def _evaluate(self, steps: int) -> Result:
        returns = self._evaluator.evaluate(self._learner.params)
        mean, std = float(np.mean(returns)), float(np.std(returns))
        self._result = Result(mean, std, len(returns), steps, self._seconds)
        self._writer.write(
            steps,
            seconds=self._seconds,
            eval_return_mean=mean,
            eval_return_std=std,
            eval_episodes=len(returns),
        )
        return self._result

    def _save(self, steps: int) -> None:
        actor_arrays, actor_meta = self._actor.get_state()
        learner_arrays, learner_meta = self._learner.get_state()
        meta: dict[str, Any] = {
            "actor_steps": steps,
            "seconds": self._seconds,
            "result": self._result,
            "actor": actor_meta,
            "learner": learner_meta,
        }
        folder = checkpoint.folder_of(self._run, steps)
        checkpoint.save(folder, {"agent": learner_arrays, "replay": actor_arrays}, meta)
        checkpoint.prune(self._run, KEPT_CHECKPOINTS)
        self._restart(steps)

    def load(self) -> None:
        """Goes on from the newest checkpoint, or from the start if the run was killed before the first one."""
        if checkpoint.latest(self._run) is None:
            self._writer.truncate_after(-1)
            return
        arrays, meta = checkpoint.load_latest(self._run)
        self._learner.set_state(arrays["agent"], meta["learner"])
        self._actor.set_state(arrays["replay"], meta["actor"])
        self._evaluator.restart(meta["actor_steps"])
        self._writer.truncate_after(meta["actor_steps"])
        self._seconds_before = meta["seconds"]
        self._started = time.monotonic()
        self._result = Result(*meta["result"]) if meta["result"] else None

    def _restart(self, steps: int) -> None:
        # What a resumed run has to do, the run that goes on does too: so both stay equal.
        self._actor.restart()
        self._evaluator.restart(steps)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turns SIGINT and SIGTERM into an event, so that a step is never cut in half."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped  # signals reach the main thread only
        return
    before = {s: signal.signal(s, lambda *_: stopped.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
