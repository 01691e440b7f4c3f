"""Running what is not finished, several processes at a time."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from aql.errors import UserError
from aql.presets import preset
from aql.sweep.results import State, begun_config, check_suite, check_unchanged, lock_folder, state_of, write_results
from aql.sweep.suites import UNHASHED, Cell, Suite, check_names, config_hash, expand

ASSUMED_STEPS_PER_SECOND = 700.0  # of one core with the preset `fast`, before anything was measured


def run(suite: Suite, out: Path, jobs: int | None = None, console: Console | None = None) -> dict[str, str]:
    """Runs what is not finished, `jobs` cells at a time; the failed cells and their last words."""
    console = console or Console(highlight=False)
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))
    jobs = len(cores) if jobs is None else jobs
    if jobs < 1:
        raise UserError(f"jobs is {jobs}: expected at least 1")
    check_names(suite)
    cells = expand(suite, out)
    out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out, console) as lock:
        check_suite(suite, out)
        check_unchanged(cells)
        runner = Runner(suite, cells, jobs, cores, lock, console)
        try:
            runner.run()
        finally:
            write_results(suite.name, out)
    return {str(cell): words for cell, words in runner.failed.items()}


def describe(suite: Suite, out: Path, jobs: int | None, console: Console) -> None:
    """Prints what `run` would do."""
    check_names(suite)
    cells = expand(suite, out)
    check_unchanged(cells)
    states = {cell: state_of(cell) for cell in cells}
    jobs = jobs or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    for cell, state in states.items():
        doing = "finished" if state.finished else "resume" if begun_config(cell.run) else "run"
        line = f"{doing:9}{cell}  {cell.config.steps:,} steps  {config_hash(cell.config)}  {cell.run}"
        console.print(escape(line), soft_wrap=True)
    steps = sum(cell.config.steps - state.actor_steps for cell, state in states.items() if not state.finished)
    seconds = seconds_left(states, jobs)
    how = "as measured"
    if seconds is None:
        seconds, how = steps / jobs / ASSUMED_STEPS_PER_SECOND, f"assuming {ASSUMED_STEPS_PER_SECOND:.0f} steps/s each"
    finished = sum(state.finished for state in states.values())
    console.print(
        f"{len(cells)} cells, {finished} finished; {steps:,} steps to go: about {_duration(seconds)} with {jobs} at a "
        f"time, {how}",
        soft_wrap=True,
    )


def seconds_left(states: dict[Cell, State], jobs: int) -> float | None:
    """How long the rest will take at the speed measured for the same task and agent, or else the task, or all."""
    measured: dict[tuple[str, ...], tuple[int, float]] = {}
    for cell, state in states.items():
        for key in ((cell.config.env, cell.config.agent), (cell.config.env,), ()):
            steps, seconds = measured.get(key, (0, 0.0))
            measured[key] = (steps + state.actor_steps, seconds + state.seconds)
    measured = {key: value for key, value in measured.items() if value[0] > 0 and value[1] > 0}
    if not measured:
        return None
    left = [0.0]
    for cell, state in states.items():
        if not state.finished:
            keys = ((cell.config.env, cell.config.agent), (cell.config.env,), ())
            steps, seconds = next(measured[key] for key in keys if key in measured)
            left.append(max(cell.config.steps - state.actor_steps, 0) * seconds / steps)
    return max(sum(left) / jobs, max(left))


def train_command(cell: Cell, resume: bool) -> list[str]:
    """The arguments of `aql` that begin a cell, or go on with it."""
    if resume:
        return ["train", "--resume", str(cell.run), "--steps", str(cell.config.steps)]
    config = cell.config
    start = preset(config.preset, env=config.env, agent=config.agent).to_json()
    arguments = ["train", config.env, "--agent", config.agent, "--preset", config.preset, "--seed", str(config.seed)]
    arguments += ["--steps", str(config.steps), "--out", str(cell.run)]
    for name, value in config.to_json().items():
        if name not in UNHASHED and value != start[name]:
            option = "--" + name.rstrip("_").replace("_", "-") + "_" * name.endswith("_")
            arguments += [option, *map(str, value if isinstance(value, tuple) else (value,))]
    return arguments


def _launch(cell: Cell, resume: bool, core: int, lock: int) -> subprocess.Popen[bytes]:
    """A process of its own session (Ctrl-C is for the sweep alone), on one core."""
    log = cell.run.with_name(cell.run.name + ".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "aql.sweep.child", str(os.getpid()), str(core), *train_command(cell, resume)]
    with log.open("wb") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"PJRT_NPROC": "1"},
            pass_fds=(lock,),
            start_new_session=True,
        )


class Runner:
    """Keeps `jobs` processes busy, and shows how they are doing."""

    POLL = 0.1  # seconds between two looks at the processes
    LIVE_PERIOD = 1.0  # seconds between two refreshes of the table
    PLAIN_PERIOD = 60.0  # seconds between two plain lines

    def __init__(
        self, suite: Suite, cells: list[Cell], jobs: int, cores: list[int], lock: int, console: Console
    ) -> None:
        self.failed: dict[Cell, str] = {}
        self._suite = suite
        self._jobs = jobs
        self._cores = cores
        self._lock = lock
        self._console = console
        self._out = cells[0].run.parents[2]
        self._states = {cell: state_of(cell) for cell in cells}
        self._waiting = [cell for cell in cells if not self._states[cell].finished]
        self._running: dict[int, tuple[Cell, subprocess.Popen[bytes]]] = {}  # by slot
        self._live: Live | None = None

    def run(self) -> None:
        """Until every cell has finished or failed."""
        drawn = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
        try:
            with _interrupts():
                self._say(f"{self._suite.name}: {self._summary()}")
                if self._live:
                    self._live.start()
                idle = not self._waiting
                while self._waiting or self._running:
                    changed = self._collect() + self._fill()
                    period = self.LIVE_PERIOD if self._live else self.PLAIN_PERIOD
                    if time.monotonic() - drawn > period or (changed and self._live):
                        self._draw()
                        drawn = time.monotonic()
                    time.sleep(self.POLL)
                if self._live or not idle:
                    self._draw()
        except BaseException:
            self._stop()
            raise
        finally:
            if self._live:
                self._live.stop()

    def _fill(self) -> int:
        """Starts what there is room for; how many."""
        free = [slot for slot in range(self._jobs) if slot not in self._running]
        started = list(zip(free, self._waiting, strict=False))
        for slot, cell in started:
            resume = begun_config(cell.run) is not None
            if not resume:
                (cell.run / "config.json").unlink(missing_ok=True)  # cut short by a kill
            process = _launch(cell, resume, self._cores[slot % len(self._cores)], self._lock)
            self._running[slot] = (cell, process)
            self._waiting.remove(cell)
            self._say(f"{'resumed' if resume else 'started'}  {cell}")
        return len(started)

    def _collect(self) -> int:
        """Takes note of the processes that have ended; how many."""
        from aql.runtime import checkpoint

        ended = [(slot, *pair) for slot, pair in self._running.items() if pair[1].poll() is not None]
        for slot, cell, process in ended:
            del self._running[slot]
            state = self._states[cell] = state_of(cell)
            if state.finished:
                checkpoint.prune(cell.run, keep=1)  # the others were for resuming, and replays are large
                write_results(self._suite.name, self._out)
                self._say(f"finished {cell}  return {_number(state.eval_return)} in {_duration(state.seconds)}")
            else:
                self.failed[cell] = _last_words(cell, process.returncode)
                self._say(f"FAILED   {cell}  {self.failed[cell]}")
        return len(ended)

    def _stop(self) -> None:
        """Lets every process write its checkpoint; a second interrupt does not wait for that."""
        processes = [process for _, process in self._running.values()]
        for process in processes:
            process.terminate()
        if processes:
            self._say(f"stopping: {len(processes)} runs write a checkpoint (Ctrl-C again: at once)", always=True)
        try:
            for process in processes:
                process.wait()
        except KeyboardInterrupt:
            for process in processes:
                process.kill()
                process.wait()

    def _draw(self) -> None:
        for cell, _ in self._running.values():
            self._states[cell] = state_of(cell)
        if self._live:
            self._live.update(Group(self._table(), Text(self._summary())), refresh=True)
        else:
            self._say(f"{self._suite.name}: {self._summary()}")

    def _say(self, line: str, always: bool = False) -> None:
        """Plain lines are for those who do not see the table."""
        if always or not self._live:
            self._console.print(escape(line), soft_wrap=True)

    def _summary(self) -> str:
        states = self._states
        steps = sum(min(states[cell].actor_steps, cell.config.steps) for cell in states)
        total = sum(cell.config.steps for cell in states)
        finished = sum(state.finished for state in states.values())
        parts = [f"{finished}/{len(states)} cells finished", f"{len(self._running)} running"]
        parts += [f"{len(self.failed)} failed"] * bool(self.failed) + [f"{100 * steps // total} %"]
        alive = {cell: state for cell, state in states.items() if cell not in self.failed}
        seconds = seconds_left(alive, self._jobs)
        if seconds is not None and (self._waiting or self._running):
            parts.append(f"{_duration(seconds)} left")
        return ", ".join(parts)

    def _table(self) -> Table:
        """A row per task, a column per agent, in it a word per seed: as many rows as the screen has room for."""
        running = {cell for cell, _ in self._running.values()}
        table = Table(title=self._suite.name, pad_edge=False)
        table.add_column("task", no_wrap=True)
        for agent in self._suite.all_agents:
            table.add_column(agent)
        by_task: dict[str, list[Cell]] = {}
        for cell in self._states:
            by_task.setdefault(cell.config.env, []).append(cell)
        room = max(self._console.height - 8, 3)
        busy = [env for env, cells in by_task.items() if any(c in running or c in self.failed for c in cells)]
        others = [env for env in by_task if env not in busy]
        shown = set((busy + others)[:room])
        group = None
        for env, cells in by_task.items():
            if env in shown:
                if group not in (None, cells[0].group):
                    table.add_section()
                group = cells[0].group
                words = [
                    Text("  ").join(self._word(c, c in running) for c in cells if c.config.agent == agent)
                    for agent in self._suite.all_agents
                ]
                table.add_row(env, *words)
        if hidden := len(by_task) - len(shown):
            table.add_row(Text(f"and {hidden} more", style="dim"))
        return table

    def _word(self, cell: Cell, running: bool) -> Text:
        state = self._states[cell]
        if cell in self.failed:
            return Text("failed", style="bold red")
        if state.finished:
            return Text(_number(state.eval_return), style="green")
        if not running:
            return Text("·", style="dim")
        text = Text(f"{100 * state.actor_steps // cell.config.steps} %", style="yellow")
        return text if state.eval_return is None else text.append(f" {_number(state.eval_return)}", style="bold")


def _last_words(cell: Cell, returncode: int) -> str:
    log = cell.run.with_name(cell.run.name + ".log")
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    code = f"exit code {returncode}" if returncode >= 0 else f"killed by signal {-returncode}"
    return f"{lines[-1].strip()} ({code}, {log})" if lines else f"{code}, {log} is empty"


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


@contextmanager
def _interrupts() -> Iterator[None]:
    """A polite end of the sweep, also by a supervisor or a closed terminal, is that of Ctrl-C.

    Also where the shell that started it in the background has it ignore Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
