"""What there is to train on, and with: `aql check`, `envs` and `agents`."""

import sys
from typing import Annotated

import tyro
from rich.console import Console

from aql.commands.arguments import parse
from aql.errors import UserError
from aql.presets import preset


def check_env(arguments: list[str]) -> int:
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

    env, agent, steps, seed = parse(options, "check", arguments, check_env)
    if steps < 1:
        raise UserError(f"--steps is {steps}: expected at least 1")
    report = check.check(env, preset("fast", env=env, agent=agent, seed=seed), steps)
    report.print(Console(highlight=False))
    return 0 if report.fit else 2


def list_envs(arguments: list[str]) -> int:
    """list the environments by id"""
    from aql import envs

    parse(lambda: None, "envs", arguments, list_envs)
    print("\n".join(envs.list_ids()))
    print("and any Gymnasium id (CartPole-v1), or your own package.module:factory", file=sys.stderr)
    return 0


def list_agents(arguments: list[str]) -> int:
    """list the agents by name"""
    from aql.agents import AGENTS

    parse(lambda: None, "agents", arguments, list_agents)
    for name, kind in AGENTS.items():
        print(f"{name:18}{kind.summary}")
    return 0
