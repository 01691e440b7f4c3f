"""The command `aql`."""

import sys
from collections.abc import Callable, Sequence

from aql.commands import runs, sweep, tell, train
from aql.errors import UserError, unknown

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train.train,
    "eval": runs.evaluate,
    "watch": runs.watch,
    "plot": runs.plot,
    "report": runs.report,
    "sweep": sweep.run_suite,
    "check": tell.check_env,
    "envs": tell.list_envs,
    "agents": tell.list_agents,
}


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


if __name__ == "__main__":
    sys.exit(main())
