"""What each part of the preset `fast` is good for: the preset with one thing changed, on three tasks with three seeds.

    python benchmarks/ablation.py [--steps 25000] [--seeds 3] [--jobs 1] [--parts critics,targets] [--out runs/ablation]
        [--output benchmarks/results/ablation.csv]
    python benchmarks/ablation.py --data benchmarks/results/ablation.csv      # the table of what was measured before

A sweep for each part. Called again, it goes on: what is finished is kept.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

from measuring import write_csv

from aql import sweep
from aql.sweep.suites import Suite, Task

TASKS = ("cartpole-swingup", "walker-walk", "cheetah-run")
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fast": ("the preset", {}),
    "wide": (
        "256 units, batches of 128 transitions, an update for four steps",
        {
            "critic_layers": (256, 256),
            "proposal_layers": (256, 128),
            "learner_num_proposal": 8,
            "learner_num_uniform": 8,
            "batch_size": 16,
            "updates_per_call": 4,
            "replayed_per_new": 31,
            "target_ema": 0.05,
            "prediction_weight": 0.0,
        },
    ),
    "prediction": ("critics that predict nothing", {"prediction_weight": 0.0}),
    "digits": ("critics learn Q itself", {"small_values": 0.0, "bias_unit": 1.0}),
    "bias": ("the last bias counts 1", {"bias_unit": 1.0}),
    "optimism": ("actors are no optimists", {"optimism": 0.0}),
    "hold": ("no actor holds on", {"exploration_hold": 1.0}),
    "chance": ("no actor holds on, epsilons from 0.01 to 0.1", {"exploration_hold": 1.0, "epsilon_high": 0.1}),
    "norm": ("no layer norm", {"layer_norm": False}),
    "critics": ("one critic, no optimism", {"num_critics": 1, "optimism": 0.0}),
    "search": ("a* as stored, no search in the learner, no optimism", {"fresh_search": False}),
    "few": (
        "one candidate in the learner's search, and a* as stored",
        {"learner_num_proposal": 1, "learner_num_uniform": 0},
    ),
    "ema": ("target EMA 0.01", {"target_ema": 0.01}),
    "targets": ("the smaller of the two critics in targets, and squares of sub-actions", {"few_subactions": 0}),
    "updates": ("two updates for each step", {"replayed_per_new": 127}),
    "repeat": ("an action for two steps", {"action_repeat": 2, "replayed_per_new": 127}),
    "returns": ("returns of one step", {"unroll_length": 1, "batch_size": 64}),
    "traces": ("returns go on beyond any action", {"trace_tolerance": 0.0}),
    "observations": ("observations as they are", {"normalise_observations": False, "magnification": 0.0}),
    "near": ("nothing is magnified", {"magnification": 0.0}),
    "encoding": ("bins one-hot", {"interval_encoding": "one-hot"}),
    "epsilon": ("epsilon for whole actions", {"epsilon_per_subaction": False}),
    "acting": ("act with the critics, not their targets", {"act_with_target": False}),
    "bins": ("three bins", {"bins": 3}),
}


def suite(steps: int, seeds: int, settings: dict[str, Any]) -> Suite:
    """The preset with some settings changed; one evaluation, at the end."""
    return Suite(
        name="ablation",
        description="the preset with one thing changed",
        tasks=tuple(Task(f"control/{task}", "", steps, {}) for task in TASKS),
        agents=("aql",),
        preset="fast",
        seeds=seeds,
        settings={"eval_every": steps, "checkpoint_every": 10 * steps} | settings,
        agent_settings={},
    )


def collect(part: str, results: Path) -> list[dict[str, Any]]:
    """The finished cells of a part."""
    with results.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = ("task", "seed", "actor_steps", "seconds", "return", "commit", "config_hash")
    return [{"part": part} | {name: row[name] for name in kept} for row in rows]


def table(rows: list[dict[str, Any]]) -> str:
    """A row for each part: the returns of its seeds on each task, and the mean of all."""
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        cells[row["part"], row["task"].removeprefix("control/")].append(float(row["return"]))
    lines = [f"| changed | {' | '.join(TASKS)} | mean |", "|---" * (2 + len(TASKS)) + "|"]
    for part in dict.fromkeys(row["part"] for row in rows):
        means = [sum(of) / len(of) for task in TASKS if (of := cells[part, task])]
        seeds = [", ".join(f"{value:.0f}" for value in cells[part, task]) for task in TASKS]
        lines.append(f"| {PARTS[part][0]} | {' | '.join(seeds)} | {sum(means) / len(means):.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=25_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time, each on one core")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/ablation.csv"))
    parser.add_argument("--data", type=Path, help="draws up the table of this file and runs nothing")
    options = parser.parse_args()
    if options.data:
        with options.data.open(newline="") as file:
            print(table(list(csv.DictReader(file))))
        return
    rows: list[dict[str, Any]] = []
    for part in options.parts.split(","):
        out = options.out / part
        sweep.run(suite(options.steps, options.seeds, PARTS[part][1]), out, options.jobs)
        rows += collect(part, out / "results.csv")
        write_csv(options.output, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
