"""Many runs: every task, agent and seed of a suite, each in a process of its own, resumable at any point.

A cell of the sweep is one run, the folder `OUT/<task>/<agent>/s<seed>` (a `/` in the task becomes `_`), with the
errors of its process beside it in `s<seed>.log`. What is done is read from these folders alone: a cell is finished
once its metrics have the evaluation at its last step, and begun once it has a config. `OUT/results.csv` has every
evaluation of the finished cells.
"""

import csv
import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from aql import metrics
from aql.config import PRESETS, Config, preset
from aql.errors import UserError, unknown

SUITES = Path(__file__).parent / "suites"
RESULTS = "results.csv"
NAMES = ("suite", "task", "agent", "preset", "seed")  # columns of results.csv, with the next two lines
MEASURED = ("actor_steps", "seconds", "return", "return_std")
COLUMNS = (*NAMES, *MEASURED, "commit", "config_hash")
UNHASHED = ("env", "agent", "preset", "seed", "steps")
ASSUMED_STEPS_PER_SECOND = 700.0  # of one core with the preset `fast`, before anything was measured
GRACE = 60.0  # seconds that a process has for its last checkpoint when the sweep was killed


# Suites


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment of a suite and what is special about it."""

    env: str
    group: str
    steps: int
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Suite:
    """What a sweep runs: tasks x agents x seeds. Settings of a task go before those of the suite."""

    name: str
    description: str
    tasks: tuple[Task, ...]
    agents: tuple[str, ...]
    preset: str
    seeds: int
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UserError(f"seeds is {self.seeds}: expected at least 1")
        if self.preset not in PRESETS:
            raise unknown("preset", self.preset, PRESETS, f"presets are {' and '.join(PRESETS)}")
        for what, names in (("task", [task.env for task in self.tasks]), ("agent", list(self.agents))):
            if not names:
                raise UserError(f"suite {self.name} has no {what}: name at least one")
            if twice := {name for name in names if names.count(name) > 1}:
                raise UserError(f"{what} {min(twice)} is in suite {self.name} twice: name it once")


class Cell(NamedTuple):
    """One run of a sweep."""

    config: Config
    group: str
    run: Path

    def __str__(self) -> str:
        return f"{self.config.env} {self.config.agent} s{self.config.seed}"


def shipped() -> dict[str, Path]:
    """The suites that come with the package, by name."""
    return {path.stem: path for path in sorted(SUITES.glob("*.toml"))}


def load(name: str) -> Suite:
    """The shipped suite of this name, or the suite in this TOML file."""
    path = Path(name) if name.endswith(".toml") else shipped().get(name)
    if path is None:
        raise unknown("suite", name, shipped(), f"suites are {', '.join(shipped())}, or name a TOML file")
    if not path.is_file():
        raise UserError(f"there is no suite {path}: name a TOML file, or one of {', '.join(shipped())}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({error}): mend the file") from error
    known = {"name": str, "description": str, "tasks": list, "agents": list, "preset": str}
    _check_keys(values, known | {"seeds": int, "steps": int, "settings": dict}, f"{path}", {"name", "tasks", "agents"})
    tasks = []
    for task in values["tasks"]:
        task = task if isinstance(task, dict) else {"env": task}
        kinds = {"env": str, "group": str, "steps": int, "settings": dict}
        _check_keys(task, kinds, f"{path}, task {task.get('env', '?')}", {"env"})
        steps = task.get("steps", values.get("steps"))
        if steps is None:
            raise UserError(f"{path}, task {task['env']} has no steps: give the task or the suite `steps`")
        tasks.append(Task(task["env"], task.get("group", ""), steps, _typed_all(task.get("settings", {}))))
    return Suite(
        name=values["name"],
        description=values.get("description", ""),
        tasks=tuple(tasks),
        agents=tuple(values["agents"]),
        preset=values.get("preset", "fast"),
        seeds=values.get("seeds", 1),
        settings=_typed_all(values.get("settings", {})),
    )


def select(
    suite: Suite,
    agents: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    settings: dict[str, Any] | None = None,
) -> Suite:
    """The suite with other agents, with some of its tasks (by id, without its prefix, or by group), shorter, changed.

    `settings` go before all that the suite says.
    """
    for name in tasks:
        known = {alias for task in suite.tasks for alias in _aliases(task)}
        if name not in known:
            raise unknown("task", name, known, f"suite {suite.name} has {', '.join(t.env for t in suite.tasks)}")
    chosen = [task for task in suite.tasks if not tasks or _aliases(task) & set(tasks)]
    changed = _typed_all(settings or {})
    return dataclasses.replace(
        suite,
        agents=tuple(agents) or suite.agents,
        tasks=tuple(
            dataclasses.replace(task, steps=task.steps if steps is None else steps, settings=task.settings | changed)
            for task in chosen
        ),
        seeds=suite.seeds if seeds is None else seeds,
    )


def expand(suite: Suite, out: Path) -> list[Cell]:
    """The cells, all of seed 0 first: a sweep that is cut short has something of everything."""
    return [
        Cell(_config(suite, task, agent, seed), task.group, out / task.env.replace("/", "_") / agent / f"s{seed}")
        for seed in range(suite.seeds)
        for task in suite.tasks
        for agent in suite.agents
    ]


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """The settings that KEY=VALUE texts name; values are those of TOML, and texts need no quotes."""
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair}: expected KEY=VALUE, as in --set batch_size=256")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = {"True": True, "False": False}.get(text, text)
        settings[name.strip().replace("-", "_")] = value
    return _typed_all(settings)


def config_hash(config: Config) -> str:
    """The first 12 hex digits of the SHA-256 of the settings as canonical JSON (sorted keys, no spaces).

    All settings of the config are in, but `env`, `agent`, `preset`, `seed` and `steps`, which results name themselves:
    equal hashes mean that two runs learned and were measured in the same way, whatever on and however long.
    """
    values = {name: value for name, value in config.to_json().items() if name not in UNHASHED}
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _aliases(task: Task) -> set[str]:
    return {task.env, task.env.rpartition("/")[2]} | ({task.group} if task.group else set())


def _config(suite: Suite, task: Task, agent: str, seed: int) -> Config:
    own = {"env": task.env, "agent": agent, "seed": seed, "steps": task.steps}
    return preset(suite.preset, **(suite.settings | task.settings | own))


def _check_keys(values: dict[str, Any], kinds: dict[str, type], where: str, required: set[str]) -> None:
    for name, value in values.items():
        if name not in kinds:
            raise unknown("key", name, kinds, f"{where} may have {', '.join(kinds)}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise UserError(f"{where}: {name} is {value!r}, expected {kinds[name].__name__}")
    for name in sorted(required - values.keys()):
        raise UserError(f"{where} has no {name}: add one")


def _typed_all(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings in the types of the config, so that 1 and 1.0 are one setting with one hash."""
    hints = typing.get_type_hints(Config)
    for name in settings:
        if name in UNHASHED:
            raise UserError(f"{name} is not a setting of a sweep: give it by the suite, or by the option of its name")
        if name not in hints:
            raise unknown("setting", name, hints, "`aql train --help` lists them all")
    return {name: _typed(name, value, hints[name]) for name, value in settings.items()}


def _typed(name: str, value: Any, hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal and value in arguments:
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_typed(name, item, arguments[0]) for item in value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and origin is None and type(value) is hint:
        return value
    expected = " or ".join(map(str, arguments)) if origin is typing.Literal else getattr(hint, "__name__", hint)
    expected = "a list such as [256, 256]" if origin is tuple else expected
    raise UserError(f"{name} is {value!r}: expected {expected}")


# What is on the disk


class State(NamedTuple):
    """How far a cell is."""

    actor_steps: int = 0
    seconds: float = 0.0
    eval_return: float | None = None
    finished: bool = False


def state_of(cell: Cell) -> State:
    """What the metrics of the cell's run say."""
    if not (cell.run / metrics.FILE).is_file():
        return State()
    rows = metrics.read(cell.run)
    evaluations = [row for row in rows if "eval_return_mean" in row]
    return State(
        actor_steps=max((row["actor_steps"] for row in rows), default=0),
        seconds=max((row.get("seconds") or 0.0 for row in rows), default=0.0),
        eval_return=evaluations[-1]["eval_return_mean"] if evaluations else None,
        finished=bool(evaluations) and evaluations[-1]["actor_steps"] >= cell.config.steps,
    )


def write_results(suite: str, out: Path) -> int:
    """Rewrites `results.csv`, atomically, from all finished cells in the folder; how many there are."""
    from aql import runs

    rows: list[tuple[Any, ...]] = []
    finished = 0
    for path in out.glob(f"*/*/s*/{runs.CONFIG}"):
        config = _begun_config(path.parent)
        if config is None or not state_of(Cell(config, "", path.parent)).finished:
            continue
        finished += 1
        names = (suite, config.env, config.agent, config.preset, config.seed)
        origin = (json.loads(path.read_text())["commit"] or "", config_hash(config))
        for row in metrics.read(path.parent):
            if "eval_return_mean" in row:
                measured = (_rounded(row[name]) for name in ("seconds", "eval_return_mean", "eval_return_std"))
                rows.append((*names, row["actor_steps"], *measured, *origin))
    rows.sort(key=lambda row: row[1:6])
    temporary = out / f".{RESULTS}.tmp"
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    os.replace(temporary, out / RESULTS)
    return finished


def _rounded(value: float | None) -> float | str:
    return "" if value is None else round(value, 3)


def _begun_config(run: Path) -> Config | None:
    """The config of a run that has begun. A kill can cut a config short only before the first metrics."""
    from aql import runs

    if not (run / runs.CONFIG).is_file():
        return None
    try:
        return runs.read_config(run)
    except UserError as error:
        if (run / metrics.FILE).exists():
            raise UserError(f"{run}: {error}") from error
        return None


def _check_unchanged(cells: list[Cell]) -> None:
    """Refuses to go on with, or to mix in, a run of other settings."""
    for cell in cells:
        begun = _begun_config(cell.run)
        if begun is None:
            continue
        before, now = begun.to_json(), cell.config.to_json()
        if changed := [name for name in now if name != "preset" and before[name] != now[name]]:
            what = ", ".join(f"{name} was {before[name]}, is {now[name]}" for name in changed[:4])
            more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
            raise UserError(
                f"{cell.run} has other settings ({what}{more}; config hash was {config_hash(begun)}, is "
                f"{config_hash(cell.config)}): choose another --out, give the old settings, or remove the folder"
            )


def _check_suite(suite: Suite, out: Path) -> None:
    """A folder has one suite."""
    path = out / "sweep.json"
    try:
        before = json.loads(path.read_text())["suite"]
    except (OSError, ValueError, LookupError):
        path.write_text(json.dumps({"suite": suite.name}) + "\n")
        return
    if before != suite.name:
        raise UserError(f"{out} has the sweep of suite {before}, not {suite.name}: choose another --out")


def _check_names(suite: Suite) -> None:
    """Finds misspelt agents and environments before anything is run."""
    from aql import envs
    from aql.agents import AGENTS

    for agent in suite.agents:
        if agent not in AGENTS:
            raise unknown("agent", agent, AGENTS, "`aql agents` lists them")
    known = set(envs.list_ids())
    for task in suite.tasks:
        if task.env.startswith(("control/", "toy/")) and task.env not in known:
            raise unknown("environment", task.env, known, "`aql envs` lists them all")


@contextmanager
def _lock(out: Path, console: Console) -> Iterator[int]:
    """One sweep per folder. The processes of the cells hold the lock too: none outlives it unseen."""
    import fcntl

    descriptor = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = None
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = os.pread(descriptor, 20, 0).decode() or "?"
                if _is_alive(owner) or (deadline and time.monotonic() > deadline):
                    raise UserError(
                        f"{out} is in use by another sweep (process {owner}): wait for it, or choose another --out"
                    ) from None
                if deadline is None:
                    deadline = time.monotonic() + GRACE + 10
                    console.print(f"waiting for the last checkpoints of the killed sweep {owner}")
                time.sleep(0.2)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


# Running


def run(suite: Suite, out: Path, jobs: int | None = None, console: Console | None = None) -> dict[str, str]:
    """Runs what is not finished, `jobs` cells at a time; the failed cells and their last words."""
    console = console or Console(highlight=False)
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))
    jobs = len(cores) if jobs is None else jobs
    if jobs < 1:
        raise UserError(f"jobs is {jobs}: expected at least 1")
    _check_names(suite)
    cells = expand(suite, out)
    out.mkdir(parents=True, exist_ok=True)
    with _lock(out, console) as lock:
        _check_suite(suite, out)
        _check_unchanged(cells)
        runner = _Runner(suite, cells, jobs, cores, lock, console)
        try:
            runner.run()
        finally:
            write_results(suite.name, out)
    return {str(cell): words for cell, words in runner.failed.items()}


def describe(suite: Suite, out: Path, jobs: int | None, console: Console) -> None:
    """Prints what `run` would do."""
    _check_names(suite)
    cells = expand(suite, out)
    _check_unchanged(cells)
    states = {cell: state_of(cell) for cell in cells}
    jobs = jobs or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    for cell, state in states.items():
        doing = "finished" if state.finished else "resume" if _begun_config(cell.run) else "run"
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
        return ["train", "--resume", str(cell.run)]
    config, start = cell.config, preset(cell.config.preset).to_json()
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
    command = [sys.executable, "-m", "aql.sweep", str(os.getpid()), str(core), *train_command(cell, resume)]
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


class _Runner:
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
            resume = _begun_config(cell.run) is not None
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
        if processes:
            self._say(f"stopping: {len(processes)} runs write a checkpoint (Ctrl-C again: at once)", always=True)
        for process in processes:
            process.terminate()
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
        for agent in self._suite.agents:
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
                    for agent in self._suite.agents
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
    """A polite end of the sweep, also by a supervisor or a closed terminal, is that of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The process of a cell


def _child(parent: int, core: int, arguments: list[str]) -> int:
    """`aql` on one core, which ends with a checkpoint when the sweep is gone."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if sys.platform == "linux":
        os.sched_setaffinity(0, {core})
    from aql.cli import main

    return main(arguments)


def _end_with(parent: int, period: float = 0.5, getppid: Callable[[], int] = os.getppid) -> None:
    while getppid() == parent:
        time.sleep(period)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_child(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
