"""Training on Ray, and what becomes of it when something really breaks: environments, processes, a node, the driver."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aql
from aql import agents, cli, envs, metrics, runs
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.errors import UserError
from aql.runtime import checkpoint, cluster, local
from aql.runtime.learner import Learner

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

TINY: dict[str, Any] = {
    "env": "faulty_envs:good",
    "agent": "uniform",
    "actors": 4,
    "workers": 1,
    "steps": 480,
    "random_steps": 80,
    "critic_layers": (8,),
    "proposal_layers": (8,),
    "num_critics": 1,
    "num_proposal": 2,
    "num_uniform": 2,
    "learner_num_proposal": 2,
    "learner_num_uniform": 2,
    "unroll_length": 2,
    "replayed_per_new": 1,
    "replay_capacity": 500,
    "batch_size": 8,
    "updates_per_call": 2,
    "eval_every": 10**9,
    "eval_episodes": 1,
    "checkpoint_every": 10**9,
    "log_every": 40,
}
FOREVER = 10**9
HERE = Path(__file__).parent
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}  # or Ray would leave one in the home folder


class Nodes:
    """A Ray cluster in a process of its own, see nodes.py."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "nodes.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._answer()

    def order(self, order: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate(timeout=300)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: Any) -> Iterator[Nodes]:
    """A head, and a node with two CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AQL_FAULTS", str(tmp_path_factory.mktemp("faults")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name, value in TOKEN.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(Path(cluster.__file__).parents[2])]))
        running = Nodes(dict(os.environ))
        try:
            running.order("add 2")
            yield running
        finally:
            running.close()


@pytest.fixture
def faults(nodes: Nodes) -> Path:
    """The folder in which the environments note what has happened, empty."""
    folder = Path(os.environ["AQL_FAULTS"])
    for note in folder.iterdir():
        note.unlink()
    return folder


def start(run: Path, nodes: Nodes, resume: bool = False, **settings: Any) -> local.Result:
    config = Config(**(TINY | settings))
    if not resume:
        runs.create(run, config)
    return local.train(config, run, resume, quiet=True, acting=cluster.on_ray(nodes.address))


def train_until(condition: Callable[[], bool], run: Path, nodes: Nodes, **settings: Any) -> None:
    """Trains, and interrupts the training as soon as the condition holds."""
    running, held = threading.Event(), False

    def watch() -> None:
        nonlocal held
        deadline = time.monotonic() + 300
        while running.is_set() and not held and time.monotonic() < deadline:
            time.sleep(0.05)
            held = condition()
        if running.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    running.set()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            start(run, nodes, steps=FOREVER, **settings)
    finally:
        running.clear()
        watcher.join()
    assert held, "waited in vain"


def last(run: Path, name: str) -> Any:
    return [row[name] for row in metrics.read(run) if name in row][-1]


def saved_steps(run: Path) -> int:
    folder = checkpoint.latest(run)
    assert folder is not None, "there is no checkpoint"
    return int(checkpoint.load(folder)[1]["actor_steps"])


# Without faults.


def test_a_run_on_ray_is_a_run(nodes: Nodes, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = start(run, nodes, env="toy/chain", workers=2, eval_every=200, checkpoint_every=300)
    assert result.actor_steps >= TINY["steps"]
    rows = metrics.read(run)
    assert [row["actor_steps"] // 200 for row in rows if "eval_return_mean" in row][:2] == [1, 2]
    assert saved_steps(run) == result.actor_steps
    learned = [row for row in rows if "critic_loss" in row]
    assert learned
    assert all(row["worker_restarts"] == 0 for row in learned)
    assert all(row["param_lag"] >= 0 for row in learned)
    assert runs.restore(run).actor_steps == result.actor_steps
    model = aql.load(run)  # without a replay, which workers do not save: it begins anew
    assert model.actor_steps == result.actor_steps
    assert model.learn(TINY["random_steps"] // 2, progress=False).actor_steps > result.actor_steps
    # As many updates for a step as in one process, but for what waits in queues: every two steps of an actor after the
    # random ones make a new unroll, which brings one replayed one; 8 make an update. A worker that starts late may have
    # made none of its random ones.
    updates = (result.actor_steps - TINY["random_steps"]) // 2 * 2 / 8
    assert updates - 12 <= last(run, "updates") <= updates + TINY["random_steps"] / 2 / 8
    # The first unrolls to be learned from were acted without a single update behind them.
    assert last(run, "param_lag") < last(run, "updates") / 2


@pytest.mark.parametrize(
    ("agent", "env"),
    [("d3pg", "toy/bandit-continuous"), ("impala", "toy/recall"), ("impala-gaussian", "toy/bandit-hybrid")],
)
def test_policies_run_on_ray_too(nodes: Nodes, tmp_path: Path, agent: str, env: str) -> None:
    memory = 4 if agent == "impala" else 0
    result = start(tmp_path / "run", nodes, env=env, agent=agent, steps=240, workers=2, memory_size=memory)
    assert last(tmp_path / "run", "updates") > 10
    assert runs.restore(tmp_path / "run").actor_steps == result.actor_steps >= 240


def test_a_learner_that_does_not_take_stops_the_workers(nodes: Nodes) -> None:
    """The queue is two calls for each worker, whatever the learner does."""
    config = Config(**(TINY | {"workers": 2, "random_steps": 0}))
    env = envs.make(config.env, 1)
    agent = agents.make(config, EnvSpec.of(env))
    params = Learner(agent, config).params
    with cluster.on_ray(nodes.address)(config, agent) as workers:
        for version in range(5):
            workers.send(params, version)
        calls = len(workers._calls)  # type: ignore[attr-defined]
        assert calls == 4
        while workers.steps < 32:
            workers.receive()
        assert workers.steps == 32  # four calls of 4 decisions for two actors each
        assert workers.metrics() == {"worker_restarts": 0}  # nothing was learned from yet
        workers.send(params, 5)
        assert workers.metrics()["param_lag"] == 5  # all calls had left with version 0


def test_a_slow_worker_does_not_hold_up_the_others(nodes: Nodes, faults: Path, tmp_path: Path) -> None:
    """One of two workers stands still until the run is over."""
    try:
        assert start(tmp_path / "run", nodes, env="faulty_envs:slow", workers=2).actor_steps >= TINY["steps"]
        assert (faults / "slow").exists()
        assert last(tmp_path / "run", "worker_restarts") == 0
    finally:
        (faults / "over").touch()


# Environments and workers that fail.


@pytest.mark.parametrize(
    ("env", "note", "told"),
    [
        ("raising", "raised", r"faulty_envs.py\", line \d+, in fault(.|\n)*RuntimeError: the floor is gone"),
        ("returning_nan", "returned nan", "infinite or not a number"),
        ("killed", "killed", "its worker process has died"),
        ("hanging", "hung", "its worker process has died"),
    ],
    ids=["raises", "returns NaN", "is killed", "hangs"],
)
def test_a_fault_costs_a_restart(
    nodes: Nodes, faults: Path, tmp_path: Path, capfd: Any, env: str, note: str, told: str
) -> None:
    run = tmp_path / "run"
    # One worker, which has to come back. Its patience is for the one that hangs: others may take long to compile.
    patience = 20.0 if env == "hanging" else 300.0
    result = start(run, nodes, env=f"faulty_envs:{env}", worker_timeout=patience)
    errors = capfd.readouterr().err
    assert (faults / note).exists()
    assert result.actor_steps >= TINY["steps"]
    assert last(run, "worker_restarts") == 1
    assert "worker 0 (actors 0 to 3) failed and is started again (1 of 10 restarts)" in errors
    assert re.search(told, errors)
    if env == "hanging":
        assert re.search(r"Timeout(.|\n)*faulty_envs.py", errors), "where it hung"
    # Two sets of four environments, and no seed twice.
    assert len(list(faults.glob("seed-*"))) == 8


def test_the_others_go_on_while_a_worker_comes_back(nodes: Nodes, faults: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_until(lambda: len(list(faults.glob("alive-*"))) == 2, run, nodes, env="faulty_envs:killed", workers=2)
    assert last(run, "worker_restarts") == 1
    assert saved_steps(run) > 0


def test_too_many_faults_end_the_run_with_a_checkpoint(nodes: Nodes, faults: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings: dict[str, Any] = {"env": "faulty_envs:broken", "max_restarts": 1}
    with pytest.raises(UserError, match=r"failed after 1 restarts of workers.*the floor is gone") as failure:
        start(run, nodes, **settings)
    assert "\n" not in str(failure.value)
    steps = saved_steps(run)
    (faults / "mended").touch()
    assert start(run, nodes, resume=True, **settings).actor_steps >= TINY["steps"] > steps
    assert last(run, "worker_restarts") == 1
    # One worker, one restart, one after resuming: no two of them with the same episodes.
    assert len(list(faults.glob("seed-*"))) == 12


def test_a_lost_node_moves_its_workers(nodes: Nodes, faults: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    node = nodes.order("add 1")
    lost = False

    def moved() -> bool:
        nonlocal lost
        if not lost and len(list(faults.glob("alive-*"))) == 2:
            nodes.order(f"kill {node}")
            lost = True
        return len(list(faults.glob("alive-*"))) == 3

    train_until(moved, run, nodes, workers=2)
    assert last(run, "worker_restarts") == 1


def test_a_worker_that_no_machine_has_room_for_is_told_of(
    nodes: Nodes, faults: Path, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "UNHEARD", 20.0)
    run = tmp_path / "run"
    node = nodes.order("add 1")
    told, lost = "", False

    def waits() -> bool:
        nonlocal told, lost
        if not lost and len(list(faults.glob("alive-*"))) == 3:
            nodes.order(f"kill {node}")
            lost = True
        told += capfd.readouterr().err
        return "has delivered nothing for 20 s" in told

    train_until(waits, run, nodes, workers=3, actors=6)
    assert re.search(r"worker \d \(actors \d to \d\) has delivered.*of which the Ray cluster has 0 free", told)
    assert saved_steps(run) > 0, "the others went on"


# The driver.


OPTIONS = [
    *("--workers", "2", "--actors", "4", "--random-steps", "80", "--critic-layers", "8", "--proposal-layers", "8"),
    *("--batch-size", "8", "--updates-per-call", "2", "--replayed-per-new", "1", "--log-every", "40"),
    *("--eval-every", "1000000000", "--eval-episodes", "2", "--quiet"),
]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `aql train` as a user would. Whatever it starts carries a mark in its environment."""
    started: list[subprocess.Popen[str]] = []
    mark = uuid.uuid4().hex

    def begin(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            # Ray forks when it starts, and JAX warns of that if it has started before.
            [sys.executable, "-W", "error::RuntimeWarning", "-m", "aql.cli", "train", *arguments],
            env=os.environ | TOKEN | {"AQL_TEST_MARK": mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C can reach all of its group, and not the tests
        )
        process.mark = mark  # type: ignore[attr-defined]
        started.append(process)
        return process

    yield begin
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in started:
        process.communicate()


def marked(mark: str) -> list[int]:
    """The processes that carry the mark, zombies not counted: they have no environment any more."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"AQL_TEST_MARK={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> float:
    """Until the condition holds; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "waited in vain"
        time.sleep(0.05)
    return time.monotonic() - began


def learns(run: Path) -> bool:
    log = run / metrics.FILE
    return log.is_file() and any("critic_loss" in row for row in metrics.read(run))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_driver_saves_and_takes_everything_along(
    driver: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    process = driver("toy/chain", *OPTIONS, "--steps", str(FOREVER), "--out", str(run))
    wait_for(lambda: learns(run), 300)
    assert len(marked(process.mark)) >= 5  # driver, two workers, and at least two processes of Ray
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does it
    else:
        process.send_signal(number)
    wait_for(lambda: not marked(process.mark), 90)
    output, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert f"aql train --resume {run}" in output
    assert saved_steps(run) > 80


def test_a_killed_driver_leaves_no_orphans_and_can_be_resumed(driver: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = [*OPTIONS, "--checkpoint-every", "200", "--steps", str(FOREVER), "--out", str(run)]
    process = driver("toy/chain", *arguments)
    wait_for(lambda: learns(run) and checkpoint.latest(run) is not None, 300)
    process.kill()
    process.wait()
    wait_for(lambda: not marked(process.mark), 120)  # two small helpers of Ray take a minute to notice
    steps = saved_steps(run)
    process = driver("--resume", str(run), "--steps", str(steps + 400), "--quiet")
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "return" in output.splitlines()[-1]
    rows = metrics.read(run)
    assert [row["actor_steps"] for row in rows] == sorted(row["actor_steps"] for row in rows)
    assert rows[-1]["actor_steps"] >= steps + 400
    wait_for(lambda: not marked(process.mark), 90)


# Errors.


def test_errors_name_the_remedy(nodes: Nodes, tmp_path: Path, capsys: Any) -> None:
    out = ["--out", str(tmp_path / "run")]
    for arguments, words in [
        (["--workers", "9"], ["workers is 9", "actors (8)"]),
        (["--workers", "4", "--ray", nodes.address], ["4 workers need a CPU each", "has 2", "--workers"]),
        (["--ray", nodes.address], ["--ray", "--workers"]),
    ]:
        assert cli.main(["train", "toy/chain", *arguments, *out, "--quiet"]) == 2
        errors = capsys.readouterr().err
        assert len(errors.splitlines()) == 1
        assert all(word in errors for word in words), errors
