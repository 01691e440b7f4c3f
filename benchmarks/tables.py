"""Markdown tables of sweeps' results: what each seed reached, and when it passed a mark.

    python benchmarks/tables.py benchmarks/results/minutes.csv --pass cartpole-swingup=800 walker-walk=900
    python benchmarks/tables.py benchmarks/results/hybrid.csv --measure success --at 100000

    python benchmarks/tables.py benchmarks/results/control39_100k.csv --at 100000 --paper
    python benchmarks/tables.py benchmarks/results/{paper_tasks,million,humanoids,minutes}.csv --columns 250000 1000000

A row for each task, a column for each agent. Figures are those of the last evaluation, or of that at the step given;
seeds are in their order. With `--paper` there is a column of the paper's AQL after 200M steps, how many it took each
seed to have as much for the first time, and a row of means.

With `--columns` the rows are how `aql` got on instead: the mean over seeds after so many steps (of how many of them,
where some were not run as far); of each seed the mean of its last five evaluations (of the last half, where there are
few), and when it first had no less than the paper; minutes, of the longest; then the paper and published agents after
as many steps of the environment as their headings say. What was not run that far has its last figure in the means.
Below, each published agent beside `aql` on the tasks that both have, `aql` by the mean of its last evaluations up to
500k steps. Several files are one.
"""

import argparse
import csv
import math
from collections import defaultdict
from pathlib import Path

from aql.report.curves import reference

Curve = list[tuple[int, float, float]]  # steps, seconds, measure

SCORES = Path(__file__).parent / "peers_published" / "control_suite_scores.csv"
PUBLISHED = {  # source, agent and steps as they count them; the headings have steps of the environment
    "SAC, 500k": ("pytorch_sac-repo", "SAC", 500_000),
    "SAC, 1M": ("pytorch_sac-repo", "SAC", 1_000_000),
    "MR.Q, 500k": ("mrq-repo (agent steps, repeat 2)", "MR.Q", 250_000),
    "TD-MPC2, 500k": ("tdmpc2-repo", "tdmpc2", 500_000),
    "D4PG, 5M": ("tonic_data", "D4PG", 5_000_000),
    "MPO, 5M": ("tonic_data", "MPO", 5_000_000),
}
TOLD = ["SAC, 500k", "MR.Q, 500k", "TD-MPC2, 500k", "D4PG, 5M"]  # task by task
COMPARED_AT = 500_000
LAST = 5  # evaluations whose mean is told, since single ones go up and down; half of them, where there are few


def read(paths: list[Path], measure: str) -> dict[tuple[str, str], dict[int, Curve]]:
    """The curves of each seed, by task and agent."""
    curves: dict[tuple[str, str], dict[int, Curve]] = defaultdict(lambda: defaultdict(list))
    origin: dict[tuple[str, str, str], Path] = {}
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                run = (row["task"], row["agent"], row["seed"])
                if origin.setdefault(run, path) != path:
                    raise SystemExit(f"{' '.join(run)} is in {origin[run]} and in {path}: give files of different runs")
                point = (int(row["actor_steps"]), float(row["seconds"]), float(row[measure]))
                curves[row["task"].partition("/")[2], row["agent"]][int(row["seed"])].append(point)
    return curves


def reached(seeds: dict[int, Curve], at: int | None) -> dict[int, tuple[int, float, float]]:
    """The last evaluation of each seed, or the last one up to a step."""
    return {seed: [p for p in curve if at is None or p[0] <= at][-1] for seed, curve in sorted(seeds.items())}


def passed(seeds: dict[int, Curve], mark: float) -> list[tuple[int, float, float] | None]:
    """The first evaluation of each seed with no less than the mark, if there is one."""
    return [next((point for point in curve if point[2] >= mark), None) for _, curve in sorted(seeds.items())]


def cell(seeds: dict[int, Curve], at: int | None, mark: float | None, paper: float | None) -> str:
    """What each seed reached, after how many steps; when it first had a mark, and what the paper has."""
    last = reached(seeds, at)
    digits = 0 if max(value for _, _, value in last.values()) > 10 else 3
    text = ", ".join(f"{value:.{digits}f}" for _, _, value in last.values())
    text += f" ({max(steps for steps, _, _ in last.values()) / 1000:g}k)"
    if mark is not None:
        minutes = ["never" if point is None else f"{point[1] / 60:.1f}" for point in passed(seeds, mark)]
        text += f"; {mark:g} after {', '.join(minutes)} min"
    if paper is not None:
        steps = ["never" if point is None else f"{point[0] / 1000:g}k" for point in passed(seeds, paper)]
        text += f"; the paper's: {', '.join(steps)}"
    return text


def mean(curves: dict[tuple[str, str], dict[int, Curve]], agent: str, tasks: list[str], at: int | None) -> float:
    """Over tasks, of the means over seeds; nan if the agent was not run on all of them."""
    values = [[value for _, _, value in reached(curves[task, agent], at).values()] for task in tasks]
    return sum(sum(each) / len(each) if each else math.nan for each in values) / len(values)


def final(task: str) -> float:
    """What the paper's AQL has after 200M steps; nan where it has nothing."""
    paper = reference(f"control/{task}")
    return math.nan if paper is None or paper.final is None else paper.final


def published() -> dict[tuple[str, str], float]:
    """Scores by agent, as named in `PUBLISHED`, and task."""
    names = {key: name for name, key in PUBLISHED.items()}
    with SCORES.open(newline="") as file:
        rows = [((row["source"], row["agent"], int(row["steps"])), row) for row in csv.DictReader(file)]
    return {(names[key], row["task"]): float(row["mean_return"]) for key, row in rows if key in names}


def progress(curves: dict[tuple[str, str], dict[int, Curve]], columns: list[int]) -> list[list[str]]:
    """A row for each task of `aql`, after that of the headings; the last one has means over tasks."""
    scores = published()
    of_steps = [f"{steps // 1000}k" for steps in columns]
    recently = f"last {LAST}, each seed"
    headings = ["task", *of_steps, recently, "as the paper", "minutes", "paper, 200M", *TOLD]
    rows: list[list[str]] = []
    for (task, agent), seeds in curves.items():
        if agent != "aql":
            continue
        of_seeds = [seeds[seed] for seed in sorted(seeds)]
        rows.append([task, *(evaluated(of_seeds, steps) for steps in columns)])
        rows[-1] += [", ".join(f"{recent(curve):.0f}" for curve in of_seeds)]
        rows[-1] += [", ".join("no" if at is None else f"{at[0] / 1000:g}k" for at in passed(seeds, final(task)))]
        rows[-1] += [f"{max(curve[-1][1] for curve in of_seeds) / 60:.0f}", f"{final(task):.0f}"]
        rows[-1] += [f"{scores[name, task]:.0f}" if (name, task) in scores else "" for name in TOLD]
    tasks = list(dict.fromkeys(task for task, agent in curves if agent == "aql"))
    means = [f"{mean(curves, 'aql', tasks, steps):.0f}" for steps in columns]
    paper = sum(map(final, tasks)) / len(tasks)
    rows.append(["mean", *means, "", "", "", f"{paper:.0f}", *[""] * len(TOLD)])
    return [headings, *rows]


def evaluated(seeds: list[Curve], at: int) -> str:
    """The mean of the seeds that were evaluated at this step, and how many they are if not all; empty if none was."""
    values = [value for curve in seeds for steps, _, value in curve if steps == at]
    if not values:
        return ""
    return f"{sum(values) / len(values):.0f}" + (f" ({len(values)})" if len(values) < len(seeds) else "")


def comparison(curves: dict[tuple[str, str], dict[int, Curve]]) -> list[list[str]]:
    """A row for each published agent: means over the tasks that it and `aql` have, after those of the headings."""
    scores = published()
    ours = {
        task: sum(recent(curve, COMPARED_AT) for curve in seeds.values()) / len(seeds)
        for (task, agent), seeds in curves.items()
        if agent == "aql"
    }
    rows = [["beside", "tasks", "its mean", "`aql`", "paper, 200M"]]
    for name in PUBLISHED:
        tasks = [task for task in ours if (name, task) in scores]
        of_each = ([scores[name, task] for task in tasks], [ours[task] for task in tasks], map(final, tasks))
        rows.append([name, str(len(tasks)), *(f"{sum(values) / max(1, len(tasks)):.0f}" for values in of_each)])
    return rows


def recent(curve: Curve, at: float = math.inf) -> float:
    """The mean of the last evaluations, of those up to a step."""
    values = [value for steps, _, value in curve if steps <= at]
    values = values[-max(1, min(LAST, len(values) // 2)) :]
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--measure", default="return")
    parser.add_argument("--at", type=int, help="step whose evaluation is shown; default: the last one")
    parser.add_argument("--pass", dest="marks", nargs="*", default=[], metavar="TASK=RETURN")
    parser.add_argument("--paper", action="store_true", help="what the paper's AQL has after 200M steps, and means")
    parser.add_argument("--columns", type=int, nargs="+", metavar="STEPS", help="how `aql` got on, beside others")
    arguments = parser.parse_args()
    if arguments.columns:
        read_curves = read(arguments.results, arguments.measure)
        for headings, *rows in (progress(read_curves, arguments.columns), comparison(read_curves)):
            for row in (headings, ["---"] * len(headings), *rows):
                print(f"| {' | '.join(row)} |")
            print()
        return
    marks = {task: float(value) for task, _, value in (mark.partition("=") for mark in arguments.marks)}
    curves = read(arguments.results, arguments.measure)
    tasks, agents = (list(dict.fromkeys(key[i] for key in curves)) for i in (0, 1))
    headings = [f"`{agent}`" for agent in agents] + ["paper, 200M"] * arguments.paper
    print(f"| task | {' | '.join(headings)} |")
    print("|---" * (1 + len(headings)) + "|")
    for task in tasks:
        paper = final(task) if arguments.paper else None
        cells = [
            cell(curves[task, agent], arguments.at, marks.get(task), paper) if (task, agent) in curves else ""
            for agent in agents
        ]
        if arguments.paper:
            cells.append(f"{final(task):.0f}")
        print(f"| {task} | {' | '.join(cells)} |")
    if arguments.paper:
        of_agents = [mean(curves, agent, tasks, arguments.at) for agent in agents]
        means = [*of_agents, sum(map(final, tasks)) / len(tasks)]
        print(f"| mean | {' | '.join(f'{value:.0f}' for value in means)} |")


if __name__ == "__main__":
    main()
