"""Training, whoever acts: by default the actors are in the process of the learner, and all is deterministic."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from aql import agents, envs
from aql.agents.base import Agent, EnvSpec, Params
from aql.config import Config
from aql.envs.base import VectorEnv
from aql.errors import UserError
from aql.evaluation import Evaluator, StoppedError
from aql.experience import Unroll
from aql.metrics import MetricsWriter, Progress
from aql.runtime import checkpoint
from aql.runtime.actor import Actor
from aql.runtime.learner import DivergedError, Learner

KEPT_CHECKPOINTS = 2

Report = Callable[..., Any]  # report(actor_steps, **metrics)


class Result(NamedTuple):
    """A greedy evaluation."""

    mean: float
    std: float
    episodes: int
    actor_steps: int
    seconds: float


class Actors(Protocol):
    """What training asks of whoever acts. `Actor` does it in this process."""

    finished_returns: list[float]  # of the episodes that have ended, oldest first

    @property
    def steps(self) -> int:
        """Actor steps taken, all actors together."""
        ...

    def send(self, params: Params, version: int) -> None:
        """Acts with these parameters, of `version` updates, without waiting for what comes of it."""
        ...

    def receive(self) -> Unroll | None:
        """Waits; the unrolls that are ready for the learner, if any."""
        ...

    def metrics(self) -> dict[str, float]:
        """What there is to tell about acting itself."""
        ...

    def restart(self) -> None:
        """Begins new episodes, if what goes on is to be the same as what resumes."""
        ...

    def get_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values that a checkpoint needs."""
        ...

    def set_state(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """The inverse of `get_state`."""
        ...


Acting = Callable[[Config, Agent], AbstractContextManager[Actors]]  # makes the actors of a run, and ends them


@contextmanager
def in_process(config: Config, agent: Agent) -> Iterator[Actor]:
    """All actors in this process, as one vector of environments."""
    env = envs.make_for(config, config.actors)
    try:
        yield Actor(agent, env, config)
    finally:
        env.close()


def check(config: Config) -> str:
    """Raises if the environment or the agent cannot be made, before anything is written; what the agent will do."""
    env = envs.make(config.env, 1)
    agent = agents.make(config, EnvSpec.of(env))
    env.close()
    return agent.summary


def train(config: Config, run: Path, resume: bool = False, quiet: bool = False, acting: Acting = in_process) -> Result:
    """Trains until `config.steps`, writing into the folder `run`.

    An interrupt or a termination signal saves a checkpoint before it ends the run.
    """
    with ExitStack() as stack:
        eval_env = envs.make_for(config, config.eval_episodes)
        stack.callback(eval_env.close)
        agent = agents.make(config, EnvSpec.of(eval_env))
        stopped = threading.Event()
        actors = stack.enter_context(acting(config, agent))
        trainer = Trainer(config, agent, actors, eval_env, is_interrupted=stopped.is_set)
        writer = stack.enter_context(MetricsWriter(run))
        if resume:
            writer.truncate_after(_resume(trainer, run))
        progress = stack.enter_context(Progress(config.steps, trainer.actor.steps, quiet=quiet))
        stack.enter_context(signals_into(stopped))  # after Ray, which has handlers of its own

        def save() -> None:
            trainer.save(checkpoint.folder_of(run, trainer.actor.steps))
            checkpoint.prune(run, KEPT_CHECKPOINTS)

        while trainer.actor.steps < config.steps:
            before = trainer.actor.steps
            try:
                with suppress(StoppedError):
                    trainer.step(writer.write)
            except Exception as error:
                kept = _keep(trainer, run)
                if isinstance(error, UserError):
                    raise UserError(f"{error}; {kept}") from error
                error.add_note(kept)
                raise
            steps = trainer.actor.steps
            stops = stopped.is_set()  # asked once: a signal that comes after this waits for the next step, to be saved
            if steps >= config.steps or stops or _passed(before, steps, config.checkpoint_every):
                save()
            progress.update(steps, trainer.recent_return, trainer.result.mean if trainer.result else None)
            if stops:
                raise KeyboardInterrupt
        try:
            return trainer.result or trainer.evaluate(writer.write)
        except StoppedError:
            raise KeyboardInterrupt from None


def _keep(trainer: "Trainer", run: Path) -> str:
    """Saves what can be saved when training has failed, and says so, whatever else fails now."""
    try:
        trainer.write(checkpoint.folder_of(run, trainer.actor.steps))
    except DivergedError:
        return f"its last checkpoint is kept, if there is one: aql eval {run}"
    except Exception as error:
        return f"the agent as of step {trainer.actor.steps:,} could not be saved: {error}"
    return f"the agent as of step {trainer.actor.steps:,} is kept: aql train --resume {run}"


def _resume(trainer: "Trainer", run: Path) -> int:
    """Loads the newest checkpoint, if the run lived to see one; the last step whose metrics stand."""
    if not checkpoint.any_folder(run):
        return -1
    trainer.load(*checkpoint.load_latest(run))
    return trainer.actor.steps


class Trainer:
    """The rhythm of training: act and learn, and now and then report and evaluate."""

    def __init__(
        self,
        config: Config,
        agent: Agent,
        actor: Actors,
        eval_env: VectorEnv,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self.agent = agent
        self.actor = actor
        self.learner = Learner(self.agent, config)
        self.evaluator = Evaluator(self.agent, eval_env, config.seed, is_interrupted)
        self.result: Result | None = None  # of the last evaluation
        self._seconds_before = 0.0  # of the processes that this one resumes
        self._started = time.monotonic()

    @classmethod
    def in_process(cls, config: Config, env: VectorEnv, eval_env: VectorEnv) -> "Trainer":
        """All actors in this process, in environments that exist already."""
        agent = agents.make(config, EnvSpec.of(env))
        return cls(config, agent, Actor(agent, env, config), eval_env)

    @property
    def seconds(self) -> float:
        """Since the start of training, interruptions not counted."""
        return self._seconds_before + time.monotonic() - self._started

    @property
    def recent_return(self) -> float | None:
        """The mean over the last finished episodes, as many as there are actors."""
        recent = self.actor.finished_returns[-self._config.actors :]
        return float(np.mean(recent)) if recent else None

    def step(self, report: Report) -> None:
        """Some steps of the actors, the updates that are due, and what the steps' number asks for."""
        before = self.actor.steps
        self.actor.send(self.learner.params, self.learner.updates)
        self.learner.learn()  # while the physics runs
        unrolls = self.actor.receive()
        if unrolls is not None:
            self.learner.add(unrolls)
        if _passed(before, self.actor.steps, self._config.log_every):
            known = {"seconds": self.seconds, "updates": self.learner.updates, "return_mean": self.recent_return}
            report(self.actor.steps, **known, **self.learner.measured(), **self.actor.metrics())
        ends = before < self._config.steps <= self.actor.steps
        if ends or _passed(before, self.actor.steps, self._config.eval_every):
            self.evaluate(report)

    def evaluate(self, report: Report) -> Result:
        """One greedy episode in each environment of the evaluation; raises `StoppedError` if the run is to end."""
        self.result = None
        returns = self.evaluator.evaluate(self.learner.params)
        mean, std = float(np.mean(returns)), float(np.std(returns))
        self.result = Result(mean, std, len(returns), self.actor.steps, self.seconds)
        measured = {"eval_return_mean": mean, "eval_return_std": std, "eval_episodes": len(returns)}
        if self.evaluator.success is not None:
            measured["eval_success_mean"] = self.evaluator.success
        report(self.actor.steps, seconds=self.seconds, **measured)
        return self.result

    def save(self, folder: Path, **more: Any) -> None:
        """`write`, and then new episodes as after `load`.

        What a resumed run has to do, the run that goes on does too: so both stay equal.
        """
        self.write(folder, **more)
        self.actor.restart()
        self.evaluator.restart(self.actor.steps)

    def write(self, folder: Path, **more: Any) -> None:
        """Writes everything that training needs to go on."""
        actor_arrays, actor_meta = self.actor.get_state()
        learner_arrays, learner_meta = self.learner.get_state()
        meta: dict[str, Any] = {
            "actor_steps": self.actor.steps,
            "seconds": self.seconds,
            "result": self.result,
            "actor": actor_meta,
            "learner": learner_meta,
            **more,
        }
        checkpoint.save(folder, {"agent": learner_arrays, "replay": actor_arrays}, meta)

    def load(self, arrays: checkpoint.Arrays, meta: dict[str, Any]) -> None:
        """The inverse of `save`."""
        self.learner.set_state(arrays["agent"], meta["learner"])
        self.actor.set_state(arrays["replay"], meta["actor"])
        self.evaluator.restart(self.actor.steps)
        self.result = Result(*meta["result"]) if meta["result"] else None
        self._seconds_before = meta["seconds"]
        self._started = time.monotonic()


def _passed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]."""
    return before // every != after // every


@contextmanager
def signals_into(stopped: threading.Event) -> Iterator[None]:
    """Ctrl-C, a polite end and a closed terminal (unless `nohup` has it ignored) set the event.

    So a step is never cut in half.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(*_: Any) -> None:
        stopped.set()
        restore()  # a second signal ends the process at once, should an environment hang

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
