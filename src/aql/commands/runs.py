"""What there is to do with runs: `aql eval`, `watch`, `plot` and `report`."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from aql.commands.arguments import parse
from aql.errors import UserError

Run = Annotated[Path, tyro.conf.Positional]


def evaluate(arguments: list[str]) -> int:
    """evaluate a trained run with its greedy policy: aql eval RUN [--episodes N] [--json]"""
    from aql import compile_cache, envs, runs
    from aql.evaluation import Evaluator

    def options(run: Run, episodes: int = 10, seed: int = 1_000_003, json: bool = False) -> tuple[Path, int, int, bool]:
        """Evaluate a trained run with its greedy policy.

        Args:
          run: the folder of the run.
          episodes: how many episodes to play.
          seed: seed of the episodes, apart from those of training.
          json: print one JSON object.
        """
        return run, episodes, seed, json

    run, episodes, seed, as_json = parse(options, "eval", arguments, evaluate)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}: expected at least 1")
    compile_cache.enable()
    restored = runs.restore(run)
    env = envs.make_for(restored.config, episodes)
    returns = Evaluator(restored.agent, env, seed).evaluate(restored.params)
    env.close()
    mean, std = float(np.mean(returns)), float(np.std(returns))
    if as_json:
        facts = {
            "env": restored.config.env,
            "agent": restored.config.agent,
            "actor_steps": restored.actor_steps,
        }
        print(json.dumps(facts | {"return_mean": mean, "return_std": std, "episodes": episodes, "seed": seed}))
    else:
        print(
            f"{restored.config.env} {restored.config.agent}: return {mean:.1f} +- {std:.1f} over {episodes} greedy "
            f"episodes after {restored.actor_steps:,} steps of training"
        )
    return 0


def watch(arguments: list[str]) -> int:
    """film one greedy episode of a trained run: aql watch RUN -o film.mp4"""
    from aql import compile_cache, runs
    from aql.report import film

    def options(
        run: Run, output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None, seed: int = 0
    ) -> tuple[Path, Path, int]:
        """Film one greedy episode.

        Args:
          run: the folder of the run.
          output: the film; default: film.mp4 in the run's folder.
          seed: seed of the episode.
        """
        return run, output or run / "film.mp4", seed

    run, output, seed = parse(options, "watch", arguments, watch)
    compile_cache.enable()
    episode_return = film.watch(runs.restore(run), output, seed)
    print(f"{output}: an episode with return {episode_return:.1f}")
    return 0


def plot(arguments: list[str]) -> int:
    """draw learning curves of runs and sweeps: aql plot RUN|RESULTS.csv... -o curves.png"""
    from aql.report import curves, drawing

    def options(
        runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
        output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("curves.png"),
        x: curves.Axis = "steps",
        paper: bool = True,
        pool: bool = False,
    ) -> tuple[tuple[Path, ...], Path, curves.Axis, bool, bool]:
        """Draw learning curves: a panel per task, a line per agent with its band over seeds.

        Args:
          runs: folders of runs, results.csv files of sweeps, or folders of sweeps.
          output: the picture; its ending is the format.
          x: what to draw against, actor steps or minutes of training.
          paper: also the returns that the paper reports for the same task.
          pool: one line for an agent and preset, whatever their other settings.
        """
        return runs, output, x, paper, pool

    runs, output, x, paper, pool = parse(options, "plot", arguments, plot)
    drawing.plot(_some(runs), output, x, paper, pool)
    print(output)
    return 0


def report(arguments: list[str]) -> int:
    """put curves, tables and films of runs and sweeps on one page: aql report RUN|RESULTS.csv... -o report.html"""
    from aql.report import page

    def options(
        runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
        output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
        pool: bool = False,
    ) -> tuple[tuple[Path, ...], Path, bool]:
        """Put curves, tables and films on one page that needs nothing else.

        Args:
          runs: folders of runs, results.csv files of sweeps, or folders of sweeps.
          output: the page.
          pool: one line for an agent and preset, whatever their other settings.
        """
        return runs, output, pool

    runs, output, pool = parse(options, "report", arguments, report)
    page.write(_some(runs), output, pool)
    print(output)
    return 0


def _some(runs: tuple[Path, ...]) -> list[Path]:
    if not runs:
        raise UserError("no runs given: name folders that `aql train` printed, or results.csv files of sweeps")
    return list(runs)
