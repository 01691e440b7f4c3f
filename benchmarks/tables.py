"""Markdown tables of sweeps' results: what each seed reached, and when it passed a mark.

    python benchmarks/tables.py benchmarks/results/minutes.csv --pass cartpole-swingup=800 walker-walk=900
    python benchmarks/tables.py benchmarks/results/hybrid.csv --measure success --at 100000

A row for each task, a column for each agent. Figures are those of the last evaluation, or of that at the step given;
seeds are in their order.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

Curve = list[tuple[int, float, float]]  # steps, seconds, measure


def read(path: Path, measure: str) -> dict[tuple[str, str], dict[int, Curve]]:
    """The curves of each seed, by task and agent."""
    curves: dict[tuple[str, str], dict[int, Curve]] = defaultdict(lambda: defaultdict(list))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            point = (int(row["actor_steps"]), float(row["seconds"]), float(row[measure]))
            curves[row["task"].partition("/")[2], row["agent"]][int(row["seed"])].append(point)
    return curves


def cell(seeds: dict[int, Curve], at: int | None, mark: float | None) -> str:
    """What each seed reached, after how many steps; with a mark, after how many minutes it passed it."""
    last = {seed: [p for p in curve if at is None or p[0] <= at][-1] for seed, curve in sorted(seeds.items())}
    digits = 0 if max(value for _, _, value in last.values()) > 10 else 3
    text = ", ".join(f"{value:.{digits}f}" for _, _, value in last.values())
    text += f" ({max(steps for steps, _, _ in last.values()) / 1000:g}k)"
    if mark is not None:
        passed = [next((p[1] for p in curve if p[2] >= mark), None) for _, curve in sorted(seeds.items())]
        text += f"; {mark:g} after " + ", ".join("never" if s is None else f"{s / 60:.1f}" for s in passed) + " min"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--measure", default="return")
    parser.add_argument("--at", type=int, help="step whose evaluation is shown; default: the last one")
    parser.add_argument("--pass", dest="marks", nargs="*", default=[], metavar="TASK=RETURN")
    arguments = parser.parse_args()
    marks = {task: float(value) for task, _, value in (mark.partition("=") for mark in arguments.marks)}
    curves = read(arguments.results, arguments.measure)
    tasks, agents = (list(dict.fromkeys(key[i] for key in curves)) for i in (0, 1))
    print(f"| task | {' | '.join(f'`{agent}`' for agent in agents)} |")
    print("|---" * (1 + len(agents)) + "|")
    for task in tasks:
        cells = [cell(curves[task, a], arguments.at, marks.get(task)) if (task, a) in curves else "" for a in agents]
        print(f"| {task} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
