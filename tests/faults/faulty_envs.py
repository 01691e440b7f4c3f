"""Environments that fail in a worker on Ray, and only there: the driver evaluates with them too.

Processes agree on what has happened through files in the folder that AQL_FAULTS names.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

OBSERVATION = np.ones(3, np.float32)


class Env(gymnasium.Env):
    """Episodes of 20 steps with reward 1. `fault` is called with the number of every step, and may give what to see."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: Callable[[int], float | None]) -> None:
        self._fault = fault
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        del options
        if seed is not None:
            _note(f"seed-{seed}")
        return OBSERVATION, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        seen = self._fault(self._steps) if in_worker() else None
        if self._steps == 60:
            _note(f"alive-{os.getpid()}")
        return OBSERVATION * (1.0 if seen is None else seen), 1.0, False, self._steps % 20 == 0, {}


def in_worker() -> bool:
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def _note(name: str) -> None:
    if in_worker():
        (Path(os.environ["AQL_FAULTS"]) / name).touch()


def _first(name: str) -> bool:
    """Whether nobody has asked before, in any process."""
    try:
        (Path(os.environ["AQL_FAULTS"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def good() -> Env:
    return Env(lambda step: None)


def raising() -> Env:
    def fault(step: int) -> None:
        if step == 30 and _first("raised"):
            raise RuntimeError("the floor is gone")

    return Env(fault)


def returning_nan() -> Env:
    return Env(lambda step: float("nan") if step == 30 and _first("returned nan") else None)


def hanging() -> Env:
    return Env(lambda step: time.sleep(3600) if step == 30 and _first("hung") else None)


def killed() -> Env:
    """A real SIGKILL of the worker's process, in the middle of a step."""
    return Env(lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == 30 and _first("killed") else None)


def broken() -> Env:
    """Raises in every worker until somebody has mended it."""

    def fault(step: int) -> None:
        if step == 30 and not (Path(os.environ["AQL_FAULTS"]) / "mended").exists():
            raise RuntimeError("the floor is gone")

    return Env(fault)


def slow() -> Env:
    """The first one to come so far takes one step for as long as the test wants."""

    def fault(step: int) -> None:
        if step == 30 and _first("slow"):
            while not (Path(os.environ["AQL_FAULTS"]) / "over").exists():
                time.sleep(0.1)

    return Env(fault)
