"""What a run tells about itself: a line of JSON per report, TensorBoard events, and a line on the screen."""

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from tensorboardX import SummaryWriter

from aql.errors import UserError

FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends to the `metrics.jsonl` of a run, an object per line, and mirrors its numbers to TensorBoard."""

    def __init__(self, run: Path, tensorboard: bool = True) -> None:
        self._run = run
        self._path = run / FILE
        self._tensorboard = tensorboard
        self._purge_step: int | None = None
        self._events: SummaryWriter | None = None  # opened by the first number: no file without events
        run.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            _rewrite(self._path, read(run))  # or the next line would be glued to a half-written one
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, actor_steps: int, **values: Any) -> None:
        """Writes one line. Values are numbers (also scalars of NumPy and JAX), strings or None.

        Numbers that are not finite become null, which every reader of JSON understands, and leave a gap in
        TensorBoard.
        """
        row = {"actor_steps": int(actor_steps)} | {name: _plain(value) for name, value in values.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        if self._tensorboard:
            if self._events is None:
                self._events = SummaryWriter(str(self._run), purge_step=self._purge_step)
            for name in values:
                if isinstance(row[name], int | float):
                    self._events.add_scalar(name, row[name], actor_steps)
            self._events.flush()

    def truncate_after(self, actor_steps: int) -> None:
        """Drops the lines after `actor_steps`: a run resumed from that step writes them again."""
        self.close()
        _rewrite(self._path, [row for row in read(self._run) if row["actor_steps"] <= actor_steps])
        self._file = self._path.open("a", encoding="utf-8")
        self._purge_step = actor_steps + 1

    def close(self) -> None:
        """Closes the files; closing twice does no harm."""
        self._file.close()
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(run: Path) -> list[dict[str, Any]]:
    """The lines of the run's `metrics.jsonl`. A last line that a killed process wrote half is left out."""
    path = run / FILE
    if not path.is_file():
        raise UserError(f"{run} has no {FILE}: name the folder of a run")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise UserError(f"{path}, line {number} is not JSON: remove the line") from error
    return rows


def _rewrite(path: Path, rows: list[dict[str, Any]]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _plain(value: Any) -> bool | int | float | str | None:
    """The value as JSON knows it; scalars of NumPy and JAX become Python's."""
    if not (value is None or isinstance(value, bool | int | float | str)):
        value = np.asarray(value).item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class EpisodeReturns:
    """The undiscounted returns of the episodes of B environments, all of which have just begun one.

    Feed it every time step that follows.
    """

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs, np.float64)  # [B] of the unfinished episodes

    def update(self, reward: np.ndarray, first: np.ndarray, last: np.ndarray) -> list[float]:
        """The returns of the episodes that end with this time step, by environment; all inputs are [B]."""
        # The reward of a first step belongs to no action, and may be anything.
        self._return = np.where(first, 0.0, self._return + np.asarray(reward, np.float64))
        return self._return[np.asarray(last, np.bool_)].tolist()


class Progress:
    """How far a training run is: one live line on a terminal, now and then a plain line elsewhere.

    The speed is that of the last `WINDOW` seconds; the remaining time follows from it.
    """

    WINDOW = 20.0  # seconds over which the speed is measured
    LIVE_PERIOD = 0.1  # seconds between two refreshes of the live line
    PLAIN_PERIOD = 10.0  # seconds between two plain lines

    def __init__(
        self,
        total_steps: int,
        start_steps: int = 0,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total_steps
        self._steps = self._drawn_steps = start_steps
        self._return: float | None = None
        self._eval_return: float | None = None
        self._quiet = quiet
        self._clock = clock
        self._console = console or Console()
        self._start_time = self._drawn_time = clock()
        self._history = deque([(self._start_time, start_steps)])
        self._live: Live | None = None
        if self._console.is_terminal and not quiet:
            # Refreshed by `update` alone: a thread of its own would compete with training.
            self._live = Live(console=self._console, auto_refresh=False)

    def update(self, actor_steps: int, return_mean: float | None = None, eval_return_mean: float | None = None) -> None:
        """Shows the state of the run. Cheap to call often; a return that is None keeps its last value."""
        self._steps = actor_steps
        self._return = self._return if return_mean is None else return_mean
        self._eval_return = self._eval_return if eval_return_mean is None else eval_return_mean
        now = self._clock()
        if now - self._drawn_time >= (self.LIVE_PERIOD if self._live else self.PLAIN_PERIOD):
            self._draw(now)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
            self._draw(self._clock())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live or self._steps != self._drawn_steps:
            self._draw(self._clock(), closing=True)
        if self._live:
            self._live.stop()

    def _draw(self, now: float, closing: bool = False) -> None:
        self._drawn_time, self._drawn_steps = now, self._steps
        self._history.append((now, self._steps))
        while len(self._history) > 2 and self._history[1][0] <= now - self.WINDOW:
            self._history.popleft()
        if self._quiet:
            return
        try:
            if self._live:
                self._live.update(self._live_line(now, closing), refresh=True)
            else:
                self._console.print(self._plain_line(now, closing), soft_wrap=True, highlight=False, markup=False)
        except (OSError, SystemExit):  # the terminal or pipe is gone (rich exits then); the run is not
            self._quiet, self._live = True, None

    def _speed(self) -> float:
        """Steps per second over the recent window; 0 before anything has happened."""
        (time_0, steps_0), (time_1, steps_1) = self._history[0], self._history[-1]
        return (steps_1 - steps_0) / (time_1 - time_0) if time_1 > time_0 else 0.0

    def _time(self, now: float, closing: bool) -> str:
        if closing:
            return f"after {_duration(now - self._start_time)}"
        speed = self._speed()
        return f"{_duration((self._total - self._steps) / speed)} left" if speed > 0 else "--:-- left"

    def _percent(self) -> int:
        return 100 * self._steps // max(self._total, 1)  # rounded down: 100 % is the end

    def _plain_line(self, now: float, closing: bool) -> str:
        parts = [f"{self._percent():3d} %  {self._steps:,}/{self._total:,} steps  {self._speed():,.0f} steps/s"]
        if self._return is not None:
            parts.append(f"return {self._return:.1f}")
        if self._eval_return is not None:
            parts.append(f"eval {self._eval_return:.1f}")
        return "  ".join([*parts, self._time(now, closing)])

    def _live_line(self, now: float, closing: bool) -> Table:
        width = len(f"{self._total:,}")  # numbers keep their place while they grow
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{self._percent():3d} %", style="bold")
        text.append(f"  {self._steps:>{width},}/{self._total:,}")
        text.append(f"  {self._speed():>6,.0f}/s", style="cyan")
        for name, value, style in (
            ("return", self._return, "green"),
            ("eval", self._eval_return, "bold green"),
        ):
            if value is not None:
                text.append(f"  {name} ", style="dim").append(f"{value:.1f}", style=style)
        text.append(f"  {self._time(now, closing)}", style="yellow")
        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True, width=min(text.cell_len, self._console.width - 2))
        bar = ProgressBar(total=max(self._total, 1), completed=self._steps, finished_style="green")
        line.add_row(bar, text)
        return line


def _duration(seconds: float) -> str:
    """`M:SS`, or `H:MM:SS` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
