"""The process of one cell."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from aql.sweep.results import GRACE


def _child(parent: int, core: int, arguments: list[str]) -> int:
    """`aql` on one core, which ends with a checkpoint when the sweep is gone."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if sys.platform == "linux":
        os.sched_setaffinity(0, {core})
    from aql.cli import main

    return main(arguments)


def _end_with(parent: int, period: float = 0.5, getppid: Callable[[], int] = os.getppid) -> None:
    while getppid() == parent:
        time.sleep(period)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_child(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
