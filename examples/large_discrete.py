"""Three million discrete actions: heat six rooms, each with a level from 0 to 11.

    python examples/large_discrete.py [STEPS]

`MultiDiscrete([12] * 6)` has 12^6 = 2,985,984 actions. DQN would need as many outputs; `aql` needs 64 candidates.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import aql

ROOMS, LEVELS = 6, 12


class Heating(gymnasium.Env):
    """Rooms that lose heat to the weather and to each other, and a boiler that serves them all.

    Each room has a wish that changes from episode to episode. Power above what the boiler can give costs dearly, so
    that no room can be set without the others. An episode is a day of 24 steps.
    """

    action_space = spaces.MultiDiscrete([LEVELS] * ROOMS)
    observation_space = spaces.Box(-5, 5, (2 * ROOMS + 1,), np.float32)
    hours = 24

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """A cold house."""
        super().reset(seed=seed)
        self.wish = self.np_random.uniform(17, 23, ROOMS)
        self.rooms = self.np_random.uniform(8, 16, ROOMS)
        self.weather = self.np_random.uniform(-5, 10)
        self.hour = 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """An hour: at level 11 a room gains 5.5 degrees before it loses some."""
        power = 0.5 * action
        neighbours = (np.roll(self.rooms, 1) + np.roll(self.rooms, -1)) / 2
        self.rooms += power + 0.1 * (self.weather - self.rooms) + 0.1 * (neighbours - self.rooms)
        self.hour += 1
        discomfort = np.mean(np.abs(self.rooms - self.wish)) / 3
        overload = max(0.0, float(np.sum(power)) - 16) / 4
        reward = 1 - min(1.0, discomfort) - min(1.0, overload)
        return self._observe(), float(reward), False, self.hour == self.hours, {}

    def _observe(self) -> np.ndarray:
        parts = [(self.wish - self.rooms) / 5, (self.rooms - 18) / 5, [self.weather / 5]]
        return np.clip(np.concatenate(parts), -5, 5).astype(np.float32)


def main(steps: int) -> None:
    """Learns, and compares with the same search without a learned proposal."""
    for agent in ("aql", "uniform"):
        model = aql.AQL(Heating, agent=agent, seed=0)
        before = model.evaluate(20).mean
        after = model.learn(steps).evaluate(20).mean
        print(f"{agent:8} before learning {before:.1f}, after {steps:,} steps {after:.1f} of {Heating.hours}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
