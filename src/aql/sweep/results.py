"""What a sweep has on the disk: how far each cell is, the results of the finished ones, and one lock."""

import csv
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from aql import metrics
from aql.config import Config
from aql.errors import UserError
from aql.sweep.suites import Cell, Suite, config_hash

RESULTS = "results.csv"
GRACE = 60.0  # seconds that a process has for its last checkpoint when the sweep was killed
NAMES = ("suite", "task", "agent", "preset", "seed")  # columns of results.csv, with the next two lines
MEASURED = ("actor_steps", "seconds", "return", "return_std", "success")
COLUMNS = (*NAMES, *MEASURED, "commit", "config_hash")


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
        config = begun_config(path.parent)
        if config is None or not state_of(Cell(config, "", path.parent)).finished:
            continue
        finished += 1
        rows += evaluations(suite, path.parent, config)
    rows.sort(key=lambda row: row[1:6])
    temporary = out / f".{RESULTS}.tmp"
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    os.replace(temporary, out / RESULTS)
    return finished


def evaluations(suite: str, run: Path, config: Config) -> Iterator[tuple[Any, ...]]:
    """A row of `COLUMNS` for each evaluation of a run."""
    from aql import runs

    names = (suite, config.env, config.agent, config.preset, config.seed)
    origin = (json.loads((run / runs.CONFIG).read_text())["commit"] or "", config_hash(config))
    for row in metrics.read(run):
        if "eval_return_mean" in row:
            names_in_run = ("seconds", "eval_return_mean", "eval_return_std", "eval_success_mean")
            yield (*names, row["actor_steps"], *(_rounded(row.get(name)) for name in names_in_run), *origin)


def _rounded(value: float | None) -> float | str:
    return "" if value is None else round(value, 3)


def begun_config(run: Path) -> Config | None:
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


def check_unchanged(cells: list[Cell]) -> None:
    """Refuses to go on with, or to mix in, a run of other settings. More steps than before are fine: it goes on."""
    for cell in cells:
        begun = begun_config(cell.run)
        if begun is None:
            continue
        before, now = begun.to_json(), cell.config.to_json()
        free = {"preset"} | ({"steps"} if begun.steps <= cell.config.steps else set())
        if changed := [name for name in now if name not in free and before[name] != now[name]]:
            what = ", ".join(f"{name} was {before[name]}, is {now[name]}" for name in changed[:4])
            more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
            raise UserError(
                f"{cell.run} has other settings ({what}{more}; config hash was {config_hash(begun)}, is "
                f"{config_hash(cell.config)}): choose another --out, give the old settings, or remove the folder"
            )


def check_suite(suite: Suite, out: Path) -> None:
    """A folder has one suite."""
    path = out / "sweep.json"
    try:
        before = json.loads(path.read_text())["suite"]
    except (OSError, ValueError, LookupError):
        path.write_text(json.dumps({"suite": suite.name}) + "\n")
        return
    if before != suite.name:
        raise UserError(f"{out} has the sweep of suite {before}, not {suite.name}: choose another --out")


@contextmanager
def lock_folder(out: Path, console: Console) -> Iterator[int]:
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
