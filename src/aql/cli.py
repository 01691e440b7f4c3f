"""The command `aql`."""

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

from aql.arguments import names, parse, value_of
from aql.config import Config, preset
from aql.errors import UserError, unknown

Run = Annotated[Path, tyro.conf.Positional]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code. Errors that a user can mend are one line and code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            _print_usage()
            return 0
        name, *rest = arguments
        if name == "--version":
            from aql import __version__

            print(f"aql {__version__}")
            return 0
        if name not in COMMANDS:
            raise unknown("command", name, COMMANDS, f"commands are {', '.join(COMMANDS)}")
        return COMMANDS[name](rest)
    except UserError as error:
        print(f"aql: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _print_usage() -> None:
    print("usage: aql COMMAND ...\n\nQ-learning for action spaces too large to enumerate.\n")
    for name, command in COMMANDS.items():
        print(f"  {name:8}{(command.__doc__ or '').splitlines()[0]}")
    print("\n`aql COMMAND --help` explains one of them.")


# train


@dataclass(frozen=True)
class _TrainOptions:
    """Train an agent.

    The settings of the config follow; their defaults depend on preset, environment and agent: `aql train ENV --help`
    shows those for ENV, without it those for control/cartpole-swingup.
    """

    config: Annotated[Config, tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff]
    out: Path | None = None
    """the run's folder; default: runs/ENV/AGENT/TIME-sSEED"""
    resume: Path | None = None
    """go on with this run where its newest checkpoint is; nothing but --steps, and the number of --workers of a run
    that has any, may be changed"""
    action_set: str | None = None
    """of an environment that has several: full or curated, for doom levels; the same as ENV?action_set=..."""
    ray: str | None = None
    """address of the Ray cluster that --workers are to run on, such as auto; default: one on this machine"""
    quiet: bool = False
    """no progress line"""


def train(arguments: list[str]) -> int:
    """train an agent on an environment: aql train ENV [--agent NAME] [--steps N] ..."""
    from aql import compile_cache, runs
    from aql.envs import ids
    from aql.runtime import cluster, local

    arguments = ["--env", *arguments] if arguments and not arguments[0].startswith("-") else arguments
    start = [value_of(f"--{name}", arguments) or getattr(Config, name) for name in ("preset", "env", "agent")]
    defaults = preset(start[0], env=start[1], agent=start[2])
    options = _parse(
        _TrainOptions,
        "train",
        arguments,
        default=_TrainOptions(config=defaults),
    )
    config: Config = options.config
    if options.resume is not None:
        run, config = options.resume, _resumed_config(options.resume, arguments)
    elif value_of("--env", arguments) is None:
        raise UserError(
            "no environment given: `aql train control/cartpole-swingup`, for instance; `aql envs` lists them"
        )
    else:
        if options.action_set is not None:
            named = ids.with_option(config.env, "action_set", options.action_set)
            config = dataclasses.replace(config, env=named)
        run = options.out or runs.default_folder(config)
    if options.ray is not None and config.workers == 0:
        raise UserError(f"--ray is {options.ray}, but there are no workers to run there: give --workers, too")
    compile_cache.enable()
    search = local.check(config)
    if options.resume is None:
        runs.create(run, config)
    else:
        runs.write_config(run, config)
    console = Console(highlight=False)
    if not options.quiet:
        about = f"{config.agent} ({search}), preset {config.preset}, seed {config.seed}"
        console.print(f"[bold]{config.env}[/]  {about}  ->  {run}", soft_wrap=True)
    try:
        acting = cluster.on_ray(options.ray) if config.workers else local.in_process
        result = local.train(config, run, options.resume is not None, options.quiet, acting)
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: aql train --resume {run}", soft_wrap=True)
        raise
    print(
        f"{config.env} {config.agent}: return {result.mean:.1f} +- {result.std:.1f} over {result.episodes} greedy "
        f"episodes after {result.actor_steps:,} steps in {result.seconds:.0f} s ({run})"
    )
    return 0


def _resumed_config(run: Path, arguments: list[str]) -> Config:
    """The run's own config; only its end may be moved, and its actors to more or fewer workers."""
    from aql import runs

    given = {a.partition("=")[0].replace("_", "-") for a in arguments if a.startswith("--")}
    extra = given - {"--resume", "--steps", "--quiet", "--workers", "--ray"}
    if extra:
        can = "only --steps can, and --workers of a run that has some"
        raise UserError(f"{', '.join(sorted(extra))} cannot be changed in a resumed run: {can}")
    config = runs.read_config(run)
    changes: dict[str, int] = {}
    for name in ("steps", "workers"):
        value = value_of(f"--{name}", arguments)
        if value is not None and not value.isdecimal():
            raise UserError(f"--{name} is {value}: expected a whole number")
        changes |= {} if value is None else {name: int(value)}
    if (changes.get("workers", config.workers) == 0) != (config.workers == 0):
        # One process saves its replay and continues it exactly; workers do neither.
        remedy = "a run stays in one process (0), or with workers (1 or more)"
        raise UserError(f"--workers is {changes['workers']} and the run began with {config.workers}: {remedy}")
    return Config.from_json(config.to_json() | changes)


# eval, watch, plot, report


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

    run, episodes, seed, as_json = _parse(options, "eval", arguments)
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

    run, output, seed = _parse(options, "watch", arguments)
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

    runs, output, x, paper, pool = _parse(options, "plot", arguments)
    drawing.plot(list(runs), output, x, paper, pool)
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

    runs, output, pool = _parse(options, "report", arguments)
    page.write(runs, output, pool)
    print(output)
    return 0


# sweep


def sweep(arguments: list[str]) -> int:
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

        Called again, it goes on: finished runs are kept, begun ones resumed, failed ones tried again.

        Args:
          suite: name of a suite (control39, control-mini, doom, foundation, hybrid, minutes), or a TOML file.
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

    given = _parse(options, "sweep", arguments)
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


# check, envs, agents


def check(arguments: list[str]) -> int:
    """tell whether an environment is fit for training: aql check ENV"""
    from aql import check

    def options(
        env: Annotated[str, tyro.conf.Positional], agent: str = "aql", steps: int = 1000, seed: int = 0
    ) -> tuple[str, str, int, int]:
        """Play random steps in an environment and tell what it is, what becomes of its spaces, and what to mend.

        Args:
          env: environment id, see `aql envs`.
          agent: for which agent, see `aql agents`.
          steps: how many random steps to play, twice.
          seed: seed of the environment and of the actions.
        """
        return env, agent, steps, seed

    env, agent, steps, seed = _parse(options, "check", arguments)
    if steps < 1:
        raise UserError(f"--steps is {steps}: expected at least 1")
    report = check.check(env, preset("fast", env=env, agent=agent, seed=seed), steps)
    report.print(Console(highlight=False))
    return 0 if report.fit else 2


def list_envs(arguments: list[str]) -> int:
    """list the environments by id"""
    from aql import envs

    _parse(lambda: None, "envs", arguments)
    print("\n".join(envs.list_ids()))
    print("and any Gymnasium id (CartPole-v1), or your own package.module:factory", file=sys.stderr)
    return 0


def list_agents(arguments: list[str]) -> int:
    """list the agents by name"""
    from aql.agents import AGENTS

    _parse(lambda: None, "agents", arguments)
    for name, kind in AGENTS.items():
        print(f"{name:18}{kind.summary}")
    return 0


def _parse(what: Any, name: str, arguments: list[str], **options: Any) -> Any:
    """The options; how a command is used is the second half of its first line."""
    return parse(what, name, arguments, usage=(COMMANDS[name].__doc__ or "").partition(": ")[2], **options)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "watch": watch,
    "plot": plot,
    "report": report,
    "sweep": sweep,
    "check": check,
    "envs": list_envs,
    "agents": list_agents,
}

if __name__ == "__main__":
    sys.exit(main())
