"""Does a run with workers on Ray learn what one process learns? The same tasks, seeds and steps, both ways.

    python benchmarks/cluster_learning.py [--tasks cartpole-swingup,walker-walk] [--workers 0,2] [--seeds 3]
        [--out runs/cluster_learning] [--output benchmarks/results/cluster_learning.csv]

Called again, it goes on: finished runs are kept, begun ones are resumed. Rows are evaluations, with seed, commit and
the hash of the config.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measuring import write_csv

from aql import metrics, runs
from aql.presets import preset
from aql.sweep import config_hash

STEPS = {"cartpole-swingup": 80_000, "walker-walk": 60_000}


def run_folder(out: Path, task: str, workers: int, seed: int) -> Path:
    return out / task / f"w{workers}" / f"s{seed}"


def is_finished(run: Path, steps: int) -> bool:
    if not (run / metrics.FILE).is_file():
        return False
    return any("eval_return_mean" in row and row["actor_steps"] >= steps for row in metrics.read(run))


def train(run: Path, task: str, workers: int, seed: int, steps: int) -> None:
    """Begins the run, or goes on with it."""
    command = [sys.executable, "-m", "aql.cli", "train"]
    if (run / runs.CONFIG).is_file():
        command += ["--resume", str(run)]
    else:
        command += [f"control/{task}", "--workers", str(workers), "--seed", str(seed), "--out", str(run)]
    subprocess.run([*command, "--steps", str(steps)], check=True)


def rows_of(run: Path, workers: int) -> list[dict[str, Any]]:
    config = runs.read_config(run)
    origin = {"commit": json.loads((run / runs.CONFIG).read_text())["commit"], "config_hash": config_hash(config)}
    names = {"task": config.env, "agent": config.agent, "preset": config.preset, "workers": workers}
    found, told = [], metrics.read(run)
    for row in told:
        if "eval_return_mean" in row:
            before = [r for r in told if "updates" in r and r["actor_steps"] <= row["actor_steps"]]
            found.append(
                names
                | {"seed": config.seed, "actor_steps": row["actor_steps"], "seconds": round(row["seconds"], 1)}
                | {"return": round(row["eval_return_mean"], 1), "return_std": round(row["eval_return_std"], 1)}
                | {"updates": before[-1]["updates"] if before else 0}
                | {"param_lag": before[-1].get("param_lag", 0) if before else 0}
                | origin
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(STEPS))
    parser.add_argument("--workers", default="0,2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="instead of 80,000 for cartpole-swingup and 60,000 for walker-walk")
    parser.add_argument("--out", type=Path, default=Path("runs/cluster_learning"))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    every = [int(word) for word in arguments.workers.split(",")]
    tasks = arguments.tasks.split(",")
    cells = [(task, workers, seed) for seed in range(arguments.seeds) for task in tasks for workers in every]
    for task, workers, seed in cells:
        steps = arguments.steps or STEPS[task]
        preset("fast", env=f"control/{task}", workers=workers, seed=seed)  # misspelt values fail before the first run
        run = run_folder(arguments.out, task, workers, seed)
        if not is_finished(run, steps):
            print(f"{task}, {workers} workers, seed {seed}", flush=True)
            train(run, task, workers, seed, steps)
        if arguments.output:
            begun = [c for c in cells if (run_folder(arguments.out, *c) / metrics.FILE).is_file()]
            rows = [row for c in sorted(begun) for row in rows_of(run_folder(arguments.out, *c), c[1])]
            write_csv(arguments.output, rows)
    for task in tasks:
        for workers in every:
            final = [rows_of(run_folder(arguments.out, task, workers, s), workers)[-1] for s in range(arguments.seeds)]
            returns = [row["return"] for row in final]
            spread = f"mean {np.mean(returns):.0f}, deviation {np.std(returns):.0f}"
            print(f"{task:20} {workers} workers: {returns} ({spread}), lag {final[0]['param_lag']:.1f} updates")


if __name__ == "__main__":
    main()
