"""How long `AQL.predict` takes for one observation, and how it grows with the number of sub-actions.

    PJRT_NPROC=1 taskset -c 0 python benchmarks/predict_speed.py

Prints the median over many calls after warm-up, and the ratio to 10 sub-actions. The goal is 1 ms for 10 on one core.
"""

import time

import gymnasium
import numpy as np

import aql

CALLS = 1000


class Blank(gymnasium.Env):
    """An environment that is never stepped: predictions need its spaces only."""

    observation_space = gymnasium.spaces.Box(-1, 1, (20,), np.float32)

    def __init__(self, dimensions: int) -> None:
        self.action_space = gymnasium.spaces.Box(-1, 1, (dimensions,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(20, np.float32), {}


def milliseconds(dimensions: int) -> float:
    """The median time of one prediction."""
    model = aql.AQL(lambda: Blank(dimensions), actors=1, eval_episodes=1)
    observations = np.random.default_rng(0).uniform(-1, 1, (CALLS, 20)).astype(np.float32)
    for observation in observations[:50]:
        model.predict(observation)
    times = []
    for observation in observations:
        start = time.perf_counter()
        model.predict(observation)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def main() -> None:
    """Prints a table."""
    measured = {dimensions: milliseconds(dimensions) for dimensions in (1, 5, 10, 21, 56, 100)}
    print("sub-actions  ms a prediction  ratio to 10")
    for dimensions, time_taken in measured.items():
        print(f"{dimensions:11}  {time_taken:15.3f}  {time_taken / measured[10]:11.2f}")


if __name__ == "__main__":
    main()
