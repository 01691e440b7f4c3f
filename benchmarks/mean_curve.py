"""The mean return over the paper's 39 control tasks against steps: `aql`, the paper's agents, published ones.

    python benchmarks/mean_curve.py benchmarks/results/{paper_tasks,million,humanoids,minutes}.csv -o docs/mean.png

A task that was run for longer than another goes on alone: whoever has ended counts with its last evaluation. Tasks
count the same, seeds within a task, too.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from tables import SCORES, Curve, reached, read

from aql.report.drawing import COLOURS, DARK, GREY, STYLE

PAPER = Path(__file__).parent / "paper"
PAPERS_AGENTS = {"AQL_SEQ": "AQL", "Uniform_QL": "Uniform Q", "IMPALA": "IMPALA"}
PUBLISHED = ("D4PG", "MPO", "TD3", "SAC", "PPO")  # all 39 tasks after 5M steps, Pardo 2020
PUBLISHED_AT = 5_000_000
UNTIL = 1_000_000  # beyond it one task alone goes on


def tasks() -> list[str]:
    """The paper's."""
    with (PAPER / "final_returns.csv").open(newline="") as file:
        return list(dict.fromkeys(row["task"] for row in csv.DictReader(file)))


def mean_over_tasks(curves: dict[str, dict[int, Curve]]) -> Curve:
    """At the step at which every task has been evaluated, and at its multiples up to `UNTIL`."""
    every = max(curve[0][0] for seeds in curves.values() for curve in seeds.values())
    end = min(UNTIL, max(curve[-1][0] for seeds in curves.values() for curve in seeds.values()))
    steps = range(every, end + 1, every)
    of_tasks = [[reached(seeds, at) for at in steps] for seeds in curves.values()]
    means = [[np.mean([value for _, _, value in seeds.values()]) for seeds in task] for task in of_tasks]
    return [(step, 0.0, float(mean)) for step, mean in zip(steps, np.mean(means, axis=0), strict=True)]


def papers_averages() -> dict[str, Curve]:
    """By agent. The first point of each is a mean over an interval that begins at 0, and has no place on this axis."""
    with (PAPER / "curves.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["figure"] == "fig1_avg"]
    of_agent = {name: [row for row in rows if row["method"] == method] for method, name in PAPERS_AGENTS.items()}
    return {
        name: [(int(float(row["x"])), 0.0, float(row["mean_return"])) for row in rows[1:]]
        for name, rows in of_agent.items()
    }


def published_means(names: list[str]) -> dict[str, float]:
    """Over these tasks, after 5M steps."""
    with SCORES.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "tonic_data"]
    scores = {(row["agent"], row["task"]): float(row["mean_return"]) for row in rows}
    return {agent: float(np.mean([scores[agent, task] for task in names])) for agent in PUBLISHED}


def plot(ours: Curve, names: list[str], output: Path) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()

        def write(text: str, at: tuple[float, float], colour: str, side: str) -> None:
            shift = 6 if side == "left" else -6
            place: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center"}
            axes.annotate(text, at, xytext=(shift, 0), color=colour, **place)

        def line(curve: Curve, name: str, colour: str, width: float) -> None:
            steps, _, values = zip(*curve, strict=True)
            axes.plot(steps, values, color=colour, linewidth=width)
            write(name, (steps[-1], values[-1]), colour, "left")

        for name, curve in papers_averages().items():
            line(curve, f"{name}, paper", DARK if name == "AQL" else GREY, 1.2)
        for name, value in published_means(names).items():
            axes.plot([PUBLISHED_AT], [value], "o", color=COLOURS[1], markersize=4)
            write(name, (PUBLISHED_AT, value), COLOURS[1], "right")
        line(ours, "aql", COLOURS[0], 2.4)
        axes.set_xscale("log")
        axes.set_xlim(ours[0][0] * 0.9, 200e6)
        axes.set_ylim(0, None)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel("steps of the environment")
        axes.set_ylabel("mean return of an episode")
        axes.set_title(f"{len(names)} control tasks")
        figure.savefig(output, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/mean.png"))
    options = parser.parse_args()
    curves = read(options.results, "return")
    names = tasks()
    missing = [task for task in names if (task, "aql") not in curves]
    if missing:
        parser.error(f"aql has no results on {', '.join(missing)}")
    ours = mean_over_tasks({task: curves[task, "aql"] for task in names})
    plot(ours, names, options.output)
    for step, _, value in ours:
        print(f"{step:>10,}  {value:.0f}")


if __name__ == "__main__":
    main()
