"""A sweep of real training processes that is killed and goes on."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")

SUITE = """
name = "tiny"
agents = ["uniform"]
seeds = 2
steps = 20000
tasks = ["toy/chain"]
[settings]
actors = 2
random_steps = 20
num_proposal = 2
num_uniform = 2
learner_num_proposal = 2
learner_num_uniform = 2
critic_layers = [8]
proposal_layers = [8]
num_critics = 1
batch_size = 4
replayed_per_new = 1
updates_per_call = 1
eval_every = 10000
eval_episodes = 2
log_every = 100
checkpoint_every = 10000
"""


def command(tmp_path: Path) -> list[str]:
    (tmp_path / "tiny.toml").write_text(SUITE)
    return [sys.executable, "-m", "aql.cli", "sweep", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out")]


def children(out: Path) -> list[int]:
    """The training processes of the sweep in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "aql.sweep.child" in words and any(word.startswith(str(out)) for word in words):
            found.append(int(path.parent.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def stop_in_the_first_run(tmp_path: Path, how: signal.Signals) -> tuple[int, str]:
    """Starts a sweep and sends it the signal while it trains; its exit code and output, after all has ended."""
    out = tmp_path / "out"
    run = out / "toy_chain/uniform/s0"
    with (tmp_path / "output").open("w") as log:
        process = subprocess.Popen([*command(tmp_path), "--jobs", "1"], stdout=log, stderr=log)
    try:
        wait_for(lambda: (run / "metrics.jsonl").is_file() and (run / "metrics.jsonl").stat().st_size > 0)
        (child,) = children(out)
        assert len(os.sched_getaffinity(child)) == 1
        process.send_signal(how)
        code = process.wait(300)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not children(out))
    assert list((run / "checkpoints").glob("[0-9]*")), "the run was to save a checkpoint before it ended"
    return code, (tmp_path / "output").read_text()


def test_ctrl_c_stops_the_runs_and_says_how_to_go_on(tmp_path: Path) -> None:
    code, told = stop_in_the_first_run(tmp_path, signal.SIGINT)
    assert code == 130
    assert "stopping: 1 runs write a checkpoint" in told
    assert "stopped; the same command goes on: aql sweep" in told


def test_goes_on_after_a_kill(tmp_path: Path) -> None:
    stop_in_the_first_run(tmp_path, signal.SIGKILL)
    told = subprocess.run([*command(tmp_path), "--jobs", "2"], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert "resumed  toy/chain uniform s0" in told.stdout
    assert "started  toy/chain uniform s1" in told.stdout
    with (tmp_path / "out/results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["actor_steps"]) for row in rows] == [
        (seed, steps) for seed in "01" for steps in ("10000", "20000")
    ]
    assert children(tmp_path / "out") == []
