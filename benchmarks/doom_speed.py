"""How fast the doom levels run: one run, on the cores that the process may use.

    python benchmarks/doom_speed.py [--seconds 5] [--envs 1,2,4,8] [--level explore_goal_locations_small]
        [--output benchmarks/results/doom_speed.csv]

Actor steps (4 tics, one picture of 84x84) a second with random actions, episodes' starts included:

- the engine alone, one process: the same buttons, no picture copied;
- one level as a Gymnasium environment;
- vectors of levels, as training uses them;

and what a new maze costs: written in place, as the levels do it, against a new process.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import write_csv

from aql.envs import doom
from aql.envs.doom import actions, engine
from aql.envs.doom.levels import ExploreEnv
from aql.runs import commit


class Rate(NamedTuple):
    """Steps by the clock, and by the time that cores worked for them, which a busy machine hardly changes."""

    per_second: float
    per_core_second: float


def rate(step: Callable[[], int], seconds: float) -> Rate:
    """Of steps, after a warm-up."""
    step()
    count, start, work = 0, time.perf_counter(), core_seconds()
    while time.perf_counter() < start + seconds:
        count += step()
    return Rate(count / (time.perf_counter() - start), count / max(core_seconds() - work, 1e-9))


def core_seconds() -> float:
    """What this process and its games have used of the cores."""
    used = sum(os.times()[:2])
    for pid in descendants("self"):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
    return used


def descendants(pid: str) -> list[str]:
    """A game is the child of the script that launched it."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def engine_alone(env: ExploreEnv, seconds: float) -> Rate:
    rng = np.random.default_rng(0)
    buttons = [actions.buttons(row) for row in rng.integers(0, actions.SIZES, (1000, 7))]
    env.reset(seed=0)
    game, i = env.engine.game, 0

    def step() -> int:
        nonlocal i
        game.make_action(buttons[i % 1000], engine.TICS)
        i += 1
        return 1

    return rate(step, seconds)


def one_level(env: ExploreEnv, seconds: float) -> Rate:
    rng = np.random.default_rng(0)
    env.reset(seed=0)

    def step() -> int:
        *_, truncated, _ = env.step(rng.integers(0, actions.SIZES))
        if truncated:
            env.reset()
        return 1

    return rate(step, seconds)


def vector(level: str, num_envs: int, seconds: float) -> Rate:
    env = doom.make(f"doom/{level}", num_envs)
    rng = np.random.default_rng(0)
    env.reset(0)

    def step() -> int:
        env.send(rng.integers(0, actions.SIZES, (num_envs, 7)).astype(np.float32))
        env.receive()
        return num_envs

    measured = rate(step, seconds)
    env.close()
    return measured


def new_maze(env: ExploreEnv, seconds: float) -> tuple[float, float]:
    """Seconds of a new maze in place and in a new process."""

    def in_place() -> int:
        env.reset()
        return 1

    def new_process() -> int:
        env.engine.process.stop()
        return in_place()

    return 1 / rate(in_place, seconds).per_second, 1 / rate(new_process, seconds).per_second


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--envs", default="1,2,4,8")
    parser.add_argument("--level", default="explore_goal_locations_small")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    env = ExploreEnv(options.level)
    alone = engine_alone(env, options.seconds)
    rates = {"engine alone": alone, "one level": one_level(env, options.seconds)}
    in_place, process = new_maze(env, options.seconds / 2)
    env.close()
    for num_envs in map(int, options.envs.split(",")):
        rates[f"vector of {num_envs}"] = vector(options.level, num_envs, options.seconds)
    print(f"{options.level}, {cores} core{'s' if cores > 1 else ''}")
    print(f"{'':16}{'steps/s':>10}{'steps per core-second':>23}{'to engine alone':>17}")
    for name, measured in rates.items():
        ratio = measured.per_core_second / alone.per_core_second
        print(f"{name:16}{measured.per_second:10,.0f}{measured.per_core_second:23,.0f}{ratio:17.2f}")
    print(f"new maze: {1e3 * in_place:.1f} ms in place, {1e3 * process:.0f} ms with a new process")
    if options.output:
        figures = [("steps", name, measured.per_second, "1/s") for name, measured in rates.items()]
        figures += [("steps", name, measured.per_core_second, "1/core-s") for name, measured in rates.items()]
        figures += [("new maze", "in place", 1e3 * in_place, "ms"), ("new maze", "new process", 1e3 * process, "ms")]
        write_csv(
            options.output,
            [
                {"quantity": quantity, "setting": setting, "value": round(value, 1), "unit": unit}
                | {"cores": cores, "commit": commit()}
                for quantity, setting, value, unit in figures
            ],
        )


if __name__ == "__main__":
    main()
