"""Many actors, one learner: the same training with workers on Ray, on this machine or on many.

The learner stays in the process of the command. `Workers` is what `Actor` is in one process: the trainer sends it
parameters and receives unrolls. A few calls are under way in each worker, never more, and a worker gets its next one
when a result was taken: a slow learner slows the workers, a slow worker nobody.
"""

import logging
import os
import re
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from aql.agents.base import Agent, Params
from aql.config import Config
from aql.errors import UserError
from aql.experience import Unroll, concatenate
from aql.runtime.local import Acting
from aql.runtime.worker import Delivery, Share, Worker, share_out

CALLS_IN_FLIGHT = 2  # one that runs and one that waits, so that no worker waits for the learner
PATIENCE = 0.2  # seconds without a result after which the trainer looks around, for signals
UNHEARD = 60.0  # seconds after which the trainer says that a new worker has delivered nothing yet


def on_ray(address: str | None = None, worker_class: type = Worker) -> Acting:
    """Actors in workers of the Ray cluster at this address, or of one on this machine that ends with the run."""

    @contextmanager
    def acting(config: Config, agent: Agent) -> Iterator[Workers]:
        del agent  # each worker makes its own
        with _session(config.workers, address):
            yield Workers(config, worker_class)

    return acting


class Workers:
    """The actors of all workers as one."""

    def __init__(self, config: Config, worker_class: type = Worker) -> None:
        self._config = config
        remote = _ray().remote(worker_class)
        # Not Ray's own restarts: every fault, in the process or of it, is to be one path, one count, one new seed.
        self._remote = remote.options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        self._shares = share_out(config.actors, config.workers)
        self._handles: dict[Share, Any] = {}
        self._calls: dict[Any, Share] = {}  # by the reference of the result, oldest first
        self._unheard: dict[Share, float] = {}  # workers without a result, and when to say so
        self._births = 0
        self._restarts = 0
        self._restarts_before = 0  # of the processes that this one resumes: they do not count against the budget
        self._params: Any = None  # the reference
        self._version = -1
        self._acted_with: list[int] = []  # versions behind what was received since the last `send`
        self._lags: deque[int] = deque(maxlen=100)
        self._env_restarts: float | None = None  # None until environments tell
        self.steps = 0
        self.finished_returns: list[float] = []

    def send(self, params: Params, version: int = 0) -> None:
        """Publishes the parameters, if they are new, and gives every worker something to do."""
        if version != self._version:
            self._params = _ray().put(jax.tree.map(np.asarray, params))
            self._version = version
        self._lags.extend(version - acted for acted in self._acted_with)
        self._acted_with = []
        under_way = Counter(self._calls.values())
        for share in self._shares:
            if share not in self._handles:
                self._handles[share] = self._remote.remote(self._config, share, self._births)
                self._births += 1
                self._unheard[share] = time.monotonic() + UNHEARD
            for _ in range(CALLS_IN_FLIGHT - under_way[share]):
                self._calls[self._handles[share].act.remote(self._params, version)] = share
        self._tell_who_is_missing()

    def receive(self) -> Unroll | None:
        """All unrolls that have arrived; waits a moment if none have."""
        ray = _ray()
        # The first call waits; the second takes what else is there, so that the queue cannot grow.
        if not ray.wait(list(self._calls), num_returns=1, timeout=PATIENCE)[0]:
            return None
        gathered = []
        for call in ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)[0]:
            if call not in self._calls:
                continue  # of a worker that has failed meanwhile
            share = self._calls.pop(call)
            try:
                delivery: Delivery = ray.get(call)
            except ray.exceptions.RayError as error:
                self._replace(share, error)
                continue
            self._unheard.pop(share, None)
            self.steps += delivery.steps
            self.finished_returns += delivery.returns
            if delivery.env_restarts is not None:
                self._env_restarts = (self._env_restarts or 0) + delivery.env_restarts
            if delivery.unrolls is not None:
                self._acted_with.append(delivery.version)
                gathered.append(delivery.unrolls)
        return concatenate(gathered) if gathered else None

    def metrics(self) -> dict[str, float]:
        """How old the parameters of the actors are, in updates, and what died and was replaced."""
        lag = {"param_lag": float(np.mean(self._lags))} if self._lags else {}
        in_envs = {} if self._env_restarts is None else {"env_restarts": self._env_restarts}
        return {**lag, **in_envs, "worker_restarts": self._restarts_before + self._restarts}

    def restart(self) -> None:
        """Episodes go on across checkpoints: what resumes here is not bitwise the same anyway."""

    def get_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The counts. Replays are not saved: docs/cluster.md says why."""
        recent = self.finished_returns[-self._config.actors :]
        restarts = self._restarts_before + self._restarts
        return {}, {"steps": self.steps, "births": self._births, "restarts": restarts, "returns": recent}

    def set_state(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """The inverse of `get_state`, before the first `send`."""
        del arrays
        self.steps = meta["steps"]
        self._births = meta["births"]
        self._restarts_before = meta["restarts"]
        self.finished_returns = list(meta["returns"])

    def _replace(self, share: Share, error: Exception) -> None:
        """Gives up a worker and all that is under way in it; the next `send` starts another one in its place."""
        _ray().kill(self._handles.pop(share))  # an exception leaves the process alive, a lost node perhaps
        self._calls = {call: other for call, other in self._calls.items() if other != share}
        budget = self._config.max_restarts
        who = self._name(share)
        told = _told(error)
        last = " ".join(told.splitlines()[-1].split())
        if self._restarts == budget:
            _say(f"{who} failed: {told}")
            raise UserError(
                f"{who} failed after {budget} restarts of workers, which is all that max_restarts allows: {last}"
            )
        self._restarts += 1
        _say(f"{who} failed and is started again ({self._restarts} of {budget} restarts): {told}")

    def _tell_who_is_missing(self) -> None:
        """Says once of each new worker that it takes long, since Ray lets it wait for a CPU without a word."""
        for share in [share for share, due in self._unheard.items() if time.monotonic() > due]:
            del self._unheard[share]
            free = _ray().available_resources().get("CPU", 0)
            _say(
                f"{self._name(share)} has delivered nothing for {UNHEARD:g} s: it is still starting, or waits for a "
                f"CPU, of which the Ray cluster has {free:g} free (`ray start` adds nodes)"
            )

    def _name(self, share: Share) -> str:
        return f"worker {self._shares.index(share)} (actors {share.first} to {share.first + share.size - 1})"


def _told(error: Exception) -> str:
    """What is worth showing of an error: tracebacks in full, of a dead process where it was."""
    text = re.sub(r"\x1b\[\d+m", "", str(error)).strip()  # Ray colours its errors, also in files
    if isinstance(error, _ray().exceptions.RayActorError) and not error.actor_init_failed:
        where = re.findall(r"^\s*((?:pid|ip): \S+)$", text, flags=re.MULTILINE)
        return f"{text.splitlines()[-1].partition('. ')[0]} ({', '.join(where)})"
    return text


def _say(text: str) -> None:
    print(f"aql: {text}", file=sys.stderr, flush=True)


def _ray() -> Any:
    """The package, which only clusters need."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UserError("workers need Ray: pip install 'aql[cluster]'") from error
    return ray


@contextmanager
def _session(workers: int, address: str | None) -> Iterator[None]:
    """Joins the cluster, or starts one on this machine with room for all workers; leaves or ends it after."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told about the run
    ray = _ray()
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": True}
    if address is None:
        # `local` never joins a cluster that happens to run here.
        options |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
    else:
        options["address"] = address
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    try:
        try:
            ray.init(**options)
        except (ConnectionError, ValueError) as error:
            remedy = "start one with `ray start --head`, or leave --ray away to use this machine"
            raise UserError(f"there is no Ray cluster at {address} ({_first_line(error)}): {remedy}") from error
        cpus = ray.cluster_resources().get("CPU", 0)
        if cpus < workers:
            remedy = "ask for fewer --workers, or add nodes with `ray start`"
            raise UserError(f"{workers} workers need a CPU each and the Ray cluster has {cpus:g}: {remedy}")
        yield
    finally:
        ray.shutdown()
        if in_main_thread:
            signal.signal(signal.SIGTERM, handler)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].strip(" .:")
