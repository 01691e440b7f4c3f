"""How cost grows with what there is to choose from, to remember and to learn with: one run of a few minutes.

    python benchmarks/growth.py [--output benchmarks/results/growth.csv] [--plot docs/growth.png] [--core 0]
    python benchmarks/growth.py --data benchmarks/results/growth.csv --plot docs/growth.png

- decisions a second against D, the sub-actions; against N + M, the candidates; against K, the bins of an interval or
  the choices of a finite set: the preset `fast` with 8 actors, 20 numbers to observe and 6 sub-actions, one thing
  changed at a time;
- memory of a full replay against the steps that it holds, of walker-walk and of pictures;
- updates a second against the number of critics and against their width.

Each panel is log-log. Its title says by which power x costs, fitted over all points and, since a fixed cost hides it
where x is small, over the upper half of them. `--data` draws what was measured before.
"""

import argparse
import csv
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measuring import decide, one_core, random_step, seconds_per_call, update, write_csv

from aql import compile_cache
from aql.actions import ActionSpace, Discrete, Interval, SubAction
from aql.agents.base import EnvSpec
from aql.experience import Unroll
from aql.presets import preset
from aql.replay import Replay
from aql.report.drawing import COLOURS, GREY, STYLE
from aql.runs import commit

ACTORS, OBSERVED, SUBACTIONS = 8, 20, 6
INTERVAL = Interval(-1.0, 1.0)


class Point(NamedTuple):
    """One measurement. Cost is what grows with x: the value itself, or what a second has fewer of."""

    quantity: str
    x_name: str
    line: str
    x: float
    value: float
    unit: str

    @property
    def cost(self) -> float:
        return 1 / self.value if self.unit == "1/s" else self.value


def spec(subactions: int = SUBACTIONS, each: SubAction = INTERVAL) -> EnvSpec:
    return EnvSpec((OBSERVED,), ActionSpace((each,) * subactions))


def decisions(x_name: str, line: str, x: float, env: EnvSpec, **settings: Any) -> Point:
    config = preset("fast", actors=ACTORS, enumerate_small=False, **settings)
    (seconds,) = seconds_per_call(decide(config, env), budget=1)
    return Point("decisions", x_name, line, x, ACTORS / seconds, "1/s")


def decisions_by_subactions() -> Iterator[Point]:
    for count in (1, 2, 5, 10, 21, 56, 100):
        yield decisions("D, sub-actions", "aql", count, spec(count))


def decisions_by_candidates() -> Iterator[Point]:
    for candidates in (10, 32, 100, 320, 1_000, 3_200, 10_000):
        half = candidates // 2
        yield decisions("N + M, candidates", "aql", candidates, spec(), num_proposal=half, num_uniform=half)


def decisions_by_choices() -> Iterator[Point]:
    counts = (2, 5, 16, 64, 256)
    for count in counts:
        yield decisions("K, bins or choices", "bins", count, spec(), bins=count)
    for count in counts:
        yield decisions("K, bins or choices", "choices", count, spec(each=Discrete(count)))


def memory_by_steps() -> Iterator[Point]:
    """What Python and NumPy have allocated for a full replay."""
    kinds: dict[str, tuple[tuple[int, ...], np.dtype, int, tuple[int, ...]]] = {
        "walker-walk": ((24,), np.dtype(np.float32), ACTORS, (100, 1_000, 10_000, 100_000)),
        "pictures": ((84, 84, 3), np.dtype(np.uint8), 1, (100, 1_000, 10_000)),
    }
    for line, (shape, dtype, actors, capacities) in kinds.items():
        step = recorded(shape, dtype, actors)
        for capacity in capacities:
            tracemalloc.start()
            replay = Replay(actors, capacity, unroll_length=1, aligned=False)
            for _ in range(capacity):
                replay.add(step)
            allocated, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            yield Point("memory", "steps in the replay", line, capacity * actors, allocated, "bytes")


def recorded(shape: tuple[int, ...], dtype: np.dtype, actors: int) -> Unroll:
    """One step of all actors, as the actor gives it to the replay."""
    now = random_step(spec(), actors, np.random.default_rng(0))
    action = np.zeros((actors, SUBACTIONS), np.float32)
    extras = {"best_action": action, "from_proposal": now.first}
    return Unroll(
        np.ones((actors, *shape), dtype), action, now.reward, now.discount, now.first, now.mask, extras=extras
    )


def updates(x_name: str, x: float, **settings: Any) -> Point:
    config = preset("fast", actors=ACTORS, **settings)
    (seconds,) = seconds_per_call(update(config, spec()), budget=2)
    return Point("updates", x_name, "aql", x, config.updates_per_call / seconds, "1/s")


def updates_by_critics() -> Iterator[Point]:
    for count in (1, 2, 3, 5, 10):
        yield updates("critics", count, num_critics=count)


def updates_by_width() -> Iterator[Point]:
    for width in (64, 128, 256, 512, 1024):
        yield updates("width of the critics", width, critic_layers=(width, width))


MEASUREMENTS = (
    decisions_by_subactions,
    decisions_by_candidates,
    decisions_by_choices,
    memory_by_steps,
    updates_by_critics,
    updates_by_width,
)


def exponents(points: Sequence[Point]) -> tuple[float, float]:
    """The power of x that cost grows with: over all points, and over their upper half."""
    x, cost = np.log([(point.x, point.cost) for point in points]).T
    upper = len(points) // 2
    return float(np.polyfit(x, cost, 1)[0]), float(np.polyfit(x[upper:], cost[upper:], 1)[0])


def panels(points: Sequence[Point]) -> dict[tuple[str, str], dict[str, list[Point]]]:
    """Points by panel and line, each in the order of x."""
    found: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for point in sorted(points, key=lambda point: (point.quantity, point.x_name, point.x)):
        found.setdefault((point.quantity, point.x_name), {}).setdefault(point.line, []).append(point)
    return found


def plot(points: Sequence[Point], output: Path) -> None:
    """A small panel for each thing that grows."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 5.4), layout="constrained")
        FigureCanvasAgg(figure)
        for place, ((quantity, x_name), lines) in enumerate(panels(points).items()):
            axes = figure.add_subplot(2, 3, place + 1)
            titles = []
            for (line, measured), colour in zip(lines.items(), COLOURS, strict=False):
                every, upper = exponents(measured)
                name = "" if len(lines) == 1 else f"{line}: "
                titles.append(f"{name}cost ~ x^{every:.2f}, upper half x^{upper:.2f}")
                scale = 1e-6 if measured[0].unit == "bytes" else 1
                x, value = [point.x for point in measured], [scale * point.value for point in measured]
                axes.loglog(x, value, "o-", color=colour, markersize=3, linewidth=1.4, label=line)
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(EngFormatter(sep=""))
                axis.set_minor_formatter(NullFormatter())
            axes.set_title("\n".join(titles), size=8)
            axes.set_xlabel(x_name, size=8)
            axes.set_ylabel("memory, MB" if quantity == "memory" else f"{quantity} a second", size=8)
            if len(lines) > 1:
                axes.legend(frameon=False, fontsize=8, labelcolor=GREY)
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, dpi=150)


def read(path: Path) -> list[Point]:
    with path.open(newline="") as file:
        rows = [{name: row[name] for name in Point._fields} for row in csv.DictReader(file)]
    return [Point(**row | {"x": float(row["x"]), "value": float(row["value"])}) for row in rows]  # type: ignore


def measure() -> Iterator[Point]:
    compile_cache.enable()
    for measurement in MEASUREMENTS:
        for point in measurement():
            print(
                f"{point.quantity:10} {point.line:16} {point.x_name:22} {point.x:10,.0f} {point.value:14,.1f} "
                f"{point.unit}",
                flush=True,
            )
            yield point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    parser.add_argument("--data", type=Path, help="an earlier --output, to draw without measuring")
    arguments = parser.parse_args()
    if arguments.data:
        points = read(arguments.data)
    else:
        one_core(arguments.core)
        began = time.monotonic()
        points = list(measure())
        print(f"{time.monotonic() - began:.0f} s")
    for (quantity, x_name), lines in panels(points).items():
        for line, measured in lines.items():
            every, upper = exponents(measured)
            print(f"{quantity:10} {line:16} cost grows with ({x_name}) to the {every:.2f}, upper half {upper:.2f}")
    if arguments.output and not arguments.data:
        rows = [point._asdict() | {"value": round(point.value, 2), "commit": commit()} for point in points]
        write_csv(arguments.output, rows)
    if arguments.plot:
        plot(points, arguments.plot)


if __name__ == "__main__":
    main()
