"""Learning curves: what runs and sweeps reached, its band over seeds, and what the paper reports."""

import csv
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from aql import metrics
from aql.errors import UserError

Axis = Literal["steps", "minutes"]
PAPER = Path(__file__).parents[3] / "benchmarks" / "paper"  # in a checkout; elsewhere there is no reference
PAPER_METHOD = "AQL_SEQ"  # what the digitised figures call `aql`
GRID_POINTS = 201
LONGER = 1.1  # times as far as the others that a run must go to be shown beyond them


@dataclass(frozen=True, eq=False)
class Curve:
    """The greedy evaluations of one run, and its training returns where they are known."""

    task: str
    agent: str
    preset: str
    seed: int
    config_hash: str
    steps: np.ndarray  # [X]
    minutes: np.ndarray  # [X]
    returns: np.ndarray  # [X]
    training_steps: np.ndarray | None = None  # [Y]
    training_minutes: np.ndarray | None = None  # [Y]
    training_returns: np.ndarray | None = None  # [Y]

    def x(self, axis: Axis) -> np.ndarray:
        """Where the evaluations are on the axis."""
        return self.steps if axis == "steps" else self.minutes


class Band(NamedTuple):
    """A mean over seeds and its interval, each [X], and the runs that go on after the others have ended."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    beyond: tuple[tuple[np.ndarray, np.ndarray], ...] = ()  # x and returns of each, from the end of the mean on


class Reference(NamedTuple):
    """The paper's own AQL on a task."""

    steps: np.ndarray  # [X]
    returns: np.ndarray  # [X]
    final: float | None  # after 2e8 steps


def read(paths: Iterable[Path]) -> list[Curve]:
    """The curves in runs and results, in the order given."""
    curves = []
    for path in paths:
        if path.is_dir() and (path / "results.csv").is_file():
            path = path / "results.csv"
        if not path.exists():
            raise UserError(f"there is no {path}: name the folder of a run, or the results.csv of a sweep")
        curves += [_read_run(path)] if path.is_dir() else _read_results(path)
    if not curves:
        raise UserError(f"no evaluation in {', '.join(map(str, paths))}: wait for one, or name other runs")
    return curves


def _read_run(run: Path) -> Curve:
    from aql import runs
    from aql.sweep import config_hash

    config = runs.read_config(run)
    rows = metrics.read(run)
    greedy = _columns([row for row in rows if row.get("eval_return_mean") is not None], "eval_return_mean")
    training = _columns([row for row in rows if row.get("return_mean") is not None], "return_mean")
    if not len(greedy[0]):
        raise UserError(f"{run} has no evaluation yet: wait for the first one, after {config.eval_every:,} steps")
    return Curve(config.env, config.agent, config.preset, config.seed, config_hash(config), *greedy, *training)


def _columns(rows: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, minutes and the named value."""
    numbers = np.array([(row["actor_steps"], row["seconds"] / 60, row[name]) for row in rows], float)
    steps, minutes, values = numbers.reshape(-1, 3).T
    return steps, minutes, values


def _read_results(path: Path) -> list[Curve]:
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    names = ("task", "agent", "preset", "seed", "config_hash")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found = runs.setdefault(tuple(row[name] for name in names), [])
                if row["return"] != "":
                    numbers = {name: float(row[name]) for name in ("actor_steps", "seconds", "return")}
                    found.append(numbers)
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not the results.csv of a sweep ({error!r}): name another file") from error
    return [
        Curve(task, agent, preset, int(seed), config, *_columns(rows, "return"))
        for (task, agent, preset, seed, config), rows in runs.items()
        if rows
    ]


def band(curves: Sequence[Curve], axis: Axis) -> Band:
    """The mean of the curves on their common grid, with a bootstrap 95 % interval over the runs.

    Curves with the same x keep it; others are interpolated linearly where all of them have values. What a run has by
    itself after that is kept beside it, but for the little by which the minutes of seeds differ.
    """
    xs = [curve.x(axis) for curve in curves]
    beyond: list[tuple[np.ndarray, np.ndarray]] = []
    if all(np.array_equal(xs[0], x) for x in xs):
        grid = xs[0]
    else:
        start, end = max(x[0] for x in xs), min(x[-1] for x in xs)
        if start > end:
            raise UserError(
                f"the runs of {curves[0].agent} on {curves[0].task} have no {axis} in common ({start:g} is after "
                f"{end:g}): draw them one by one"
            )
        grid = np.linspace(start, end, GRID_POINTS)
        for x, curve in zip(xs, curves, strict=True):
            if x[-1] > LONGER * end:
                last = np.interp(end, x, curve.returns)
                beyond.append((np.append(end, x[x > end]), np.append(last, curve.returns[x > end])))
    values = np.stack([np.interp(grid, x, curve.returns) for x, curve in zip(xs, curves, strict=True)])
    low, high = bootstrap(values, np.random.default_rng(0))
    return Band(grid, values.mean(axis=0), low, high, tuple(beyond))


def bootstrap(
    values: np.ndarray, rng: np.random.Generator, resamples: int = 2_000, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile bootstrap interval of the mean over the first axis: values [S, X] to two [X]."""
    chosen = rng.integers(len(values), size=(resamples, len(values)))  # [R, S]
    counts = np.stack([np.bincount(row, minlength=len(values)) for row in chosen])  # [R, S]
    means = counts @ values / len(values)  # [R, X]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


@functools.cache
def reference(task: str, folder: Path = PAPER) -> Reference | None:
    """What the paper reports for a task of ours, such as `control/walker-walk`."""
    name = task.removeprefix("control/")
    if name == task or not folder.is_dir():
        return None
    with (folder / "curves.csv").open(newline="") as file:
        points = [
            (float(row["x"]), float(row["mean_return"]))
            for row in csv.DictReader(file)
            if row["panel"] == name and row["method"] == PAPER_METHOD
        ]
    with (folder / "final_returns.csv").open(newline="") as file:
        final = [
            float(row["mean_final_return"])
            for row in csv.DictReader(file)
            if row["task"] == name and row["method"] == PAPER_METHOD
        ]
    if not points:
        return None
    steps, returns = np.array(points).T
    return Reference(steps, returns, final[0] if final else None)


def labels(curves: Sequence[Curve], pool: bool = False) -> list[str]:
    """The line that each curve belongs to: its agent, told apart by preset and settings only where that is needed.

    With `pool`, other settings than the preset tell nothing apart.
    """
    named = [(curve.agent, curve.preset, curve.config_hash, curve.task) for curve in curves]
    found = []
    for agent, preset, config, _ in named:
        presets = {p for a, p, _, _ in named if a == agent}
        tasks = {t for a, p, _, t in named if (a, p) == (agent, preset)}
        configs = [{c for a, p, c, t in named if (a, p, t) == (agent, preset, task)} for task in tasks]
        label = agent if len(presets) == 1 else f"{agent} {preset}"
        found.append(label if pool or max(map(len, configs)) == 1 else f"{label} {config[:6]}")
    return found
