"""`aql train`."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from aql.commands.arguments import parse, value_of
from aql.config import Config
from aql.errors import UserError
from aql.presets import preset


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
    options = parse(
        _TrainOptions,
        "train",
        arguments,
        train,
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
    console = Console(highlight=False)
    with runs.alone_in(run):
        if options.resume is not None:
            runs.write_config(run, config)
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
