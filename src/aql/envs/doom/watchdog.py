"""Ends game processes that hang. Who waits for one cannot do it: the wait has no time limit."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HANGS_AFTER = 30.0  # seconds that a step, or a start, may take: they take milliseconds, or some hundred
_PERIOD = 0.25  # seconds between two looks

_awake = 0.0  # seconds so far; not those in which this process was stopped, too, as by Ctrl-Z
_at_work: set["_Work"] = set()
_starting = threading.Lock()
_thread: threading.Thread | None = None


@dataclasses.dataclass(eq=False)
class _Work:
    pid_file: Path
    since: float


@contextlib.contextmanager
def watch(pid_file: Path) -> Iterator[None]:
    """Kills the process with the id in the file if what is done inside takes too long.

    That then ends as if the process had crashed.
    """
    _ensure_thread()
    work = _Work(pid_file, _awake)
    _at_work.add(work)
    try:
        yield
    finally:
        _at_work.remove(work)


def _ensure_thread() -> None:
    """One thread for all engines of this process: a timer for each step would cost more than the step."""
    global _thread
    if _thread is None:
        with _starting:
            if _thread is None:
                _thread = threading.Thread(target=_look, name="doom watchdog", daemon=True)
                _thread.start()


def _look() -> None:
    global _awake
    while True:
        time.sleep(_PERIOD)
        _awake += _PERIOD
        for work in list(_at_work):
            if _awake - work.since > HANGS_AFTER:
                work.since = _awake  # the time of the next one, if it is replaced
                # It may have died by itself, or not be there yet.
                with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
                    os.kill(int(work.pid_file.read_text()), signal.SIGKILL)
