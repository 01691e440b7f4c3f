"""Evaluations of single runs as rows of results, with what was changed against the preset: for tuning.

    python benchmarks/collect.py RUN... [--output benchmarks/results/some_tuning.csv]

Sweeps write such rows by themselves. A run of which the beginning is another run's appears with all of its evaluations.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from measuring import write_csv

from aql import metrics, runs
from aql.config import Config, preset
from aql.sweep.results import COLUMNS
from aql.sweep.suites import config_hash

OF_THE_RUN = {"env", "agent", "preset", "seed", "steps", "eval_every", "eval_episodes", "checkpoint_every", "log_every"}
MEASURED = ("eval_return_mean", "eval_return_std", "eval_success_mean")


def changed(config: Config) -> str:
    """Settings that the preset of this code does not have, as `name=value`."""
    default = preset(config.preset, env=config.env, agent=config.agent).to_json()
    given = config.to_json()
    return " ".join(
        f"{name}={given[name]}" for name in given if name not in OF_THE_RUN and given[name] != default[name]
    )


def rows(run: Path) -> list[dict[str, Any]]:
    """A row for each evaluation."""
    config = runs.read_config(run)
    commit = json.loads((run / runs.CONFIG).read_text())["commit"] or ""
    names = ("tuning", config.env, config.agent, config.preset, config.seed)
    found = []
    for row in metrics.read(run):
        if "eval_return_mean" in row:
            measured = ["" if row.get(name) is None else round(row[name], 3) for name in ("seconds", *MEASURED)]
            values = (*names, row["actor_steps"], *measured, commit, config_hash(config))
            found.append(dict(zip(COLUMNS, values, strict=True)) | {"changed": changed(config)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/tuning.csv"))
    options = parser.parse_args()
    collected = [row for run in options.runs for row in rows(run)]
    write_csv(options.output, collected)
    print(f"{len(collected)} evaluations of {len(options.runs)} runs in {options.output}")


if __name__ == "__main__":
    main()
