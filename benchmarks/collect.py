"""Evaluations of single runs as rows of results, with what was changed against the preset: for tuning.

    python benchmarks/collect.py RUN... [--output benchmarks/results/some_tuning.csv]

Sweeps write such rows by themselves. A run of which the beginning is another run's appears with all of its evaluations.
"""

import argparse
from pathlib import Path
from typing import Any

from measuring import write_csv

from aql import runs
from aql.config import Config
from aql.presets import preset
from aql.sweep.results import COLUMNS, evaluations

OF_THE_RUN = {"env", "agent", "preset", "seed", "steps", "eval_every", "eval_episodes", "checkpoint_every", "log_every"}


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
    what = {"changed": changed(config)}
    return [dict(zip(COLUMNS, row, strict=True)) | what for row in evaluations("tuning", run, config)]


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
