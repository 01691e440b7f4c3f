"""Scheduling with masks: three machines, eight jobs; what is done, running or not ready may not be chosen.

    python examples/masked_scheduling.py [STEPS]

The environment gives its mask in `info["action_mask"]`, one entry for each choice of each machine. `aql` never
chooses what the mask forbids: not when it acts, not when it explores, not when it bootstraps.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import aql

MACHINES, JOBS = 3, 8
WAIT = JOBS  # the last choice of every machine


class Workshop(gymnasium.Env):
    """Jobs become ready at different times and take longer on some machines. Every job that waits costs its weight.

    Two machines that take the same job at once: the first gets it, the other loses its turn. That cannot be said by a
    mask, but learned.
    """

    action_space = spaces.MultiDiscrete([JOBS + 1] * MACHINES)
    observation_space = spaces.Box(-1, 10, (JOBS * (3 + MACHINES) + MACHINES,), np.float32)
    limit = 60

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """New jobs."""
        super().reset(seed=seed)
        self.duration = self.np_random.integers(2, 9, (JOBS, MACHINES))
        self.ready_at = np.where(np.arange(JOBS) < 4, 0, self.np_random.integers(1, 12, JOBS))
        self.weight = self.np_random.integers(1, 5, JOBS) / 4
        self.taken = np.zeros(JOBS, bool)
        self.busy = np.zeros(MACHINES, int)  # for how many steps more
        self.time = 0
        return self._observe(), {"action_mask": self._mask()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Machines take jobs, then a unit of time goes by."""
        for machine, job in enumerate(action):
            if job != WAIT and not self.taken[job]:
                self.taken[job] = True
                self.busy[machine] = self.duration[job, machine]
        waiting = ~self.taken & (self.ready_at <= self.time)
        reward = -float(np.sum(self.weight[waiting])) / 4 - 0.02 * float(np.sum(self.busy > 0))
        self.busy = np.maximum(self.busy - 1, 0)
        self.time += 1
        done = bool(self.taken.all())
        return self._observe(), reward, done, self.time == self.limit and not done, {"action_mask": self._mask()}

    def _mask(self) -> np.ndarray:
        """[MACHINES * (JOBS + 1)] a free machine takes a job that is ready or waits; a busy one goes on."""
        jobs = (~self.taken & (self.ready_at <= self.time))[None] & (self.busy == 0)[:, None]
        return np.concatenate([jobs, np.ones((MACHINES, 1), bool)], axis=1).ravel()

    def _observe(self) -> np.ndarray:
        ready_in = np.clip(self.ready_at - self.time, 0, 10) / 5
        parts = [self.taken, ready_in, self.weight * ~self.taken, self.duration.ravel() / 5, self.busy / 5]
        return np.concatenate(parts).astype(np.float32)


def shortest_first(env: Workshop) -> np.ndarray:
    """The rule of thumb: the machine that is fastest for the job with the most weight per time takes it."""
    mask = env._mask().reshape(MACHINES, JOBS + 1)[:, :JOBS]
    action = np.full(MACHINES, WAIT)
    gain = np.where(mask, env.weight / env.duration.T, -1.0)
    while gain.max() > 0:
        machine, job = np.unravel_index(gain.argmax(), gain.shape)
        action[machine] = job
        gain[machine], gain[:, job] = -1, -1
    return action


def rule_of_thumb(episodes: int) -> float:
    """The mean return of `shortest_first`."""
    env, total = Workshop(), 0.0
    for seed in range(episodes):
        env.reset(seed=seed)
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(shortest_first(env))
            total += reward
            over = terminated or truncated
    return total / episodes


def main(steps: int) -> None:
    """Learns, and compares with a rule of thumb."""
    model = aql.AQL(Workshop, seed=0)
    print(f"before learning {model.evaluate(100).mean:.2f}, rule of thumb {rule_of_thumb(100):.2f}")
    model.learn(steps)
    print(f"after {steps:,} steps {model.evaluate(100).mean:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 80_000)
