"""One cell of `run.py`, in a process of its own: an agent on a task for some minutes, or on a trivial environment.

    python worker.py learn sbx-sac walker-walk --seed 0 --minutes 6 --output cell.csv
    python worker.py spaces sb3-dqn Discrete --output cell.csv

Runs in the peers' environment, or for `aql` in ours. The clock starts when learning does: what an agent compiles
counts, evaluations do not.
"""

import argparse
import csv
import importlib
import importlib.metadata
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
from tasks import Control, Trivial, action_spaces

PEERS = {
    "sbx-sac": ("sbx", "SAC"),
    "sbx-td3": ("sbx", "TD3"),
    "sbx-tqc": ("sbx", "TQC"),
    "sbx-crossq": ("sbx", "CrossQ"),
    "sbx-dqn": ("sbx", "DQN"),
    "sb3-sac": ("stable_baselines3", "SAC"),
    "sb3-dqn": ("stable_baselines3", "DQN"),
    "sb3-ppo": ("stable_baselines3", "PPO"),
}
PACKAGES = {"sbx": "sbx-rl", "stable_baselines3": "stable-baselines3"}
SPACE_STEPS = 20_000  # DQN's exploration ends after a tenth of them, and only then does it evaluate Q to act
WARM_STEPS = 2_500

GoingOn = Callable[[], bool]  # asked every few steps: may take its time, and says whether to go on


class Student(Protocol):
    """Whoever learns."""

    version: str

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        ...

    def learn(self, steps: int, going_on: GoingOn) -> None:
        """Learns until then, or until it shall not go on."""
        ...

    def evaluate(self, episodes: int) -> np.ndarray:
        """Returns of greedy episodes."""
        ...


def version_of(name: str) -> str:
    """The release of a peer, or our commit."""
    if name == "aql":
        from aql.runs import commit

        return f"aql {commit()}"
    package = PACKAGES[PEERS[name][0]]
    return f"{package} {importlib.metadata.version(package)}"


class Peer:
    """An algorithm of Stable-Baselines3 or Stable-Baselines-JAX, as it comes."""

    def __init__(self, name: str, env: gymnasium.Env, eval_env: gymnasium.Env, seed: int) -> None:
        module, algorithm = PEERS[name]
        self._model: Any = getattr(importlib.import_module(module), algorithm)("MlpPolicy", env, seed=seed)
        self._eval_env = eval_env
        eval_env.reset(seed=1_000_003 + seed)
        self.version = version_of(name)

    @property
    def steps(self) -> int:
        return int(self._model.num_timesteps)

    def learn(self, steps: int, going_on: GoingOn) -> None:
        self._model.learn(steps, callback=lambda *_: going_on())

    def evaluate(self, episodes: int) -> np.ndarray:
        returns = np.zeros(episodes)
        for episode in range(episodes):
            (observation, _), ended = self._eval_env.reset(), False
            while not ended:
                action, _ = self._model.predict(observation, deterministic=True)
                observation, reward, terminated, truncated, _ = self._eval_env.step(action)
                returns[episode] += float(reward)
                ended = terminated or truncated
        return returns


class Ours:
    """The agent `aql` with the preset `fast`."""

    def __init__(self, env: Any, seed: int) -> None:
        import aql

        # Lines of metrics are where going on is asked; evaluations are ours.
        quiet: dict[str, Any] = {"log_every": 500, "eval_every": 10**12, "eval_episodes": 1}
        self._model = aql.AQL(env, seed=seed, **quiet)
        self.version = version_of("aql")

    @property
    def steps(self) -> int:
        return self._model.actor_steps

    def learn(self, steps: int, going_on: GoingOn) -> None:
        self._model.learn(steps, callback=lambda _: going_on(), progress=False)

    def evaluate(self, episodes: int) -> np.ndarray:
        return np.array([self._model.evaluate(episodes).mean])


class Clock:
    """Seconds of learning."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def without(self, function: Callable[[], Any]) -> Any:
        """Calls the function, whose time does not count."""
        start = time.perf_counter()
        result = function()
        self._start += time.perf_counter() - start
        return result


def learn(name: str, task: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each evaluation."""
    student: Student
    if name == "aql":
        student = Ours(f"control/{task}", options.seed)
    else:
        student = Peer(name, Control(task), Control(task), options.seed)
    rows: list[dict[str, Any]] = []
    budget, due = 60 * options.minutes, min(options.every, 60 * options.minutes)
    clock = Clock()

    def going_on() -> bool:
        nonlocal due
        if (seconds := clock.seconds) < due:
            return True
        returns = clock.without(lambda: student.evaluate(options.episodes))
        cell = {"peer": name, "task": task, "seed": options.seed, "steps": student.steps, "seconds": round(seconds, 1)}
        rows.append(cell | {"return": round(float(returns.mean()), 1), "version": student.version})
        print(f"{name} {task} {student.steps:,} steps, {seconds:.0f} s: {returns.mean():.1f}", flush=True)
        due = min(due + options.every, budget)
        return seconds < budget

    student.learn(10**9, going_on)
    return rows


def act(name: str, space: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Steps a second while learning on a trivial environment, or how the space was refused."""
    action_space = action_spaces()[space]
    row = {"peer": name, "space": str(action_space).replace("\n", " "), "steps_per_second": None, "refused": ""}
    row |= {"seed": options.seed, "version": version_of(name)}
    student: Student
    try:
        if name == "aql":
            student = Ours(lambda: Trivial(action_space), options.seed)
        else:
            student = Peer(name, Trivial(action_space), Trivial(action_space), options.seed)
    except (AssertionError, NotImplementedError, ValueError) as error:
        return [row | {"refused": str(error).partition("\n")[0][:120]}]
    clock = Clock()
    warm: tuple[int, float] | None = None  # steps and seconds when everything was compiled and explored

    def going_on() -> bool:
        nonlocal warm
        if warm is None and student.steps >= WARM_STEPS:
            warm = student.steps, clock.seconds
        return warm is None or clock.seconds < warm[1] + options.seconds

    student.learn(SPACE_STEPS, going_on)
    assert warm is not None
    return [row | {"steps_per_second": round((student.steps - warm[0]) / (clock.seconds - warm[1]))}]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("learn", "spaces"))
    parser.add_argument("peer", choices=("aql", *PEERS))
    parser.add_argument("what", help="a task, or a kind of action space")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--core", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--every", type=float, default=30, help="seconds between evaluations")
    parser.add_argument("--episodes", type=int, default=5, help="of an evaluation")
    parser.add_argument("--seconds", type=float, default=15, help="on a trivial environment")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    rows = (learn if options.mode == "learn" else act)(options.peer, options.what, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.output.with_name(f".{options.output.name}.tmp")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(options.output)  # a cell that is there is finished


if __name__ == "__main__":
    main()
