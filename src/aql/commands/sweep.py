"""`aql sweep`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from aql.commands.arguments import names, parse


def run_suite(arguments: list[str]) -> int:
    """run every task, agent and seed of a suite: aql sweep SUITE [--agents A,B] [--seeds N] [--out DIR]"""
    from aql import sweep

    def options(
        suite: Annotated[str, tyro.conf.Positional],
        agents: str = "",
        tasks: str = "",
        seeds: int | None = None,
        steps: int | None = None,
        jobs: int | None = None,
        out: Path | None = None,
        dry_run: bool = False,
        set: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = (),
    ) -> dict[str, Any]:
        """Run every task, agent and seed of a suite.

        Called again, it goes on: finished runs are kept, begun ones resumed, failed ones tried again; with more
        --steps finished ones go on as well.

        Args:
          suite: name of a suite, such as minutes (an unknown one lists them all), or a TOML file.
          agents: agents to run instead of those of the suite, with commas between.
          tasks: tasks or groups to choose from the suite, with commas between.
          seeds: how many seeds, from 0; default: as many as the suite says.
          steps: actor steps of each run; default: what the suite says.
          jobs: runs at a time, each on a core of its own; default: as many as there are cores.
          out: folder of the sweep; default: runs/sweeps/SUITE.
          dry_run: only print what would be run, and about how long it would take.
          set: settings of the config to change, as in --set gamma=0.98 batch_size=256.
        """
        return locals()

    given = parse(options, "sweep", arguments, run_suite)
    suite = sweep.load(given["suite"])
    suite = sweep.select(
        suite,
        agents=names(given["agents"]),
        tasks=names(given["tasks"]),
        seeds=given["seeds"],
        steps=given["steps"],
        settings=sweep.parse_settings(pair for pairs in given["set"] for pair in pairs),
    )
    out = given["out"] or Path("runs") / "sweeps" / suite.name
    console = Console(highlight=False)
    if given["dry_run"]:
        sweep.describe(suite, out, given["jobs"], console)
        return 0
    try:
        failed = sweep.run(suite, out, given["jobs"], console)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on: {shlex.join(['aql', 'sweep', *arguments])}")
        raise
    print(f"results: {out / sweep.RESULTS}")
    for cell, words in failed.items():
        print(f"aql: {cell} failed: {words}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} failed; the same command tries them again", file=sys.stderr)
    return 1 if failed else 0
