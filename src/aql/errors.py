"""Errors that a user can cause and mend: one line that names the value, what was expected and the remedy."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The command prints its message without a traceback and exits with code 2."""


def unknown(kind: str, given: str, known: Iterable[str], remedy: str) -> UserError:
    """An unknown name, with the near ones."""
    near = difflib.get_close_matches(given, list(known), n=4, cutoff=0.4)
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    return UserError(f"unknown {kind} {given!r}: {suggestion}{remedy}")
