"""Environment ids with options: `doom/explore_goal_locations_small?action_set=curated&resolution=42`.

An id with its options is one text, so that configs, results and checkpoints name an environment in full.
"""

import ast
from typing import Any

from aql.errors import UserError


def split(env_id: str) -> tuple[str, dict[str, Any]]:
    """The name and the options. Values are Python's numbers, True, False and None where they read so, else texts."""
    name, _, query = env_id.partition("?")
    options: dict[str, Any] = {}
    for pair in filter(None, query.split("&")):
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"environment {env_id!r}: the option {pair!r} is not of the form name=value")
        if key in options:
            raise UserError(f"environment {env_id!r}: the option {key!r} is given twice")
        options[key] = _value(text)
    return name, options


def with_option(env_id: str, name: str, value: Any) -> str:
    """The id with one more option, or with another value of it."""
    bare, options = split(env_id)
    options[name] = value
    return f"{bare}?{'&'.join(f'{key}={text}' for key, text in options.items())}"


def refuse_options(env_id: str) -> None:
    """Raises if the id has options: for environments that take none."""
    name, options = split(env_id)
    if options:
        raise UserError(f"{name} has no option {next(iter(options))!r}: leave it out")


def _value(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
