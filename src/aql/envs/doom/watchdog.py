"""Ends game processes that hang. Who waits for one cannot do it: the wait has no time limit."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

HANGS_AFTER = 30.0  # seconds that a step, or the start of a map, may take: they take milliseconds
_PERIOD = 0.25  # seconds between two looks

_awake = 0.0  # seconds so far; not those in which this process was stopped, too, as by Ctrl-Z
_since: dict[int, float] = {}  # the processes at work, and when they began it
_starting = threading.Lock()
_thread: threading.Thread | None = None


@contextlib.contextmanager
def watch(pid: int) -> Iterator[None]:
    """Kills the process if what is done inside takes too long; that then ends as if the process had crashed."""
    _ensure_thread()
    _since[pid] = _awake
    try:
        yield
    finally:
        del _since[pid]


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
        for pid, since in list(_since.items()):
            if _awake - since > HANGS_AFTER:
                with contextlib.suppress(ProcessLookupError):  # it has died by itself
                    os.kill(pid, signal.SIGKILL)
