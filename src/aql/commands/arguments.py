"""Reading command lines: tyro's errors as one line, and what has to be known before tyro reads."""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import tyro

from aql.errors import UserError


def parse(what: Any, name: str, arguments: list[str], command: Callable[..., Any], **options: Any) -> Any:
    """tyro's result; its framed errors as one line. How a command is used is the second half of its first line."""
    usage = (command.__doc__ or "").partition(": ")[2]
    output, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            return tyro.cli(what, prog=f"aql {name}", args=arguments, **options)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            print(output.getvalue(), end="")
            raise
        raise UserError(_one_line(errors.getvalue() or output.getvalue(), name, usage)) from None


def _one_line(report: str, name: str, usage: str) -> str:
    """tyro's report, a box on a terminal and ruled sections elsewhere: its message and the options it thinks near."""
    is_box = "│" in report
    lines = [line.strip("│ ") for line in report.splitlines() if not line.startswith(("╭", "╰"))]
    sections: list[list[str]] = [[]]
    for line in lines:
        if line and not line.strip("─-"):
            sections.append([])
        else:
            sections[-1].append(line)
    message, *hints = sections if is_box else sections[1:]
    near = dict.fromkeys(line.split()[0] for section in hints for line in section if line.startswith("--"))
    suggestion = f"did you mean {' or '.join(near)}? " if near and "Unrecognized" in report else ""
    form = f"the form is `{usage}`; " if usage and not suggestion else ""
    return f"{' '.join(message).strip()}: {suggestion}{form}`aql {name} --help` lists the options"


def value_of(option: str, arguments: list[str]) -> str | None:
    """What the option is given as, the last time it is given."""
    found = None
    for i, argument in enumerate(arguments):
        if argument == option and i + 1 < len(arguments):
            found = arguments[i + 1]
        elif argument.startswith(option + "="):
            found = argument.partition("=")[2]
    return found


def names(listed: str) -> list[str]:
    """What a list with commas names."""
    return [name.strip() for name in listed.split(",") if name.strip()]
