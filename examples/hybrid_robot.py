"""A robot with a discrete and a continuous choice in every step: move the hand, and open or close it.

    python examples/hybrid_robot.py [STEPS]

The hand must go to the block, close, carry it to the goal and open. The action is a `Dict` of a `Box` and a `Discrete`,
given to `aql` as it is.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import aql

KEEP, CLOSE, OPEN = range(3)


class PickAndPlace(gymnasium.Env):
    """A hand in the unit square, a block and a goal. It ends with the block at the goal, or after 40 steps."""

    action_space = spaces.Dict(
        {"move": spaces.Box(-0.2, 0.2, (2,), np.float32), "grip": spaces.Discrete(3)}  # KEEP, CLOSE, OPEN
    )
    observation_space = spaces.Box(-2, 2, (8,), np.float32)
    limit = 40
    reach = 0.15

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Places hand, block and goal at random."""
        super().reset(seed=seed)
        self.hand, self.block, self.goal = self.np_random.uniform(0, 1, (3, 2))
        self.closed = self.holding = False
        self.steps = 0
        return self._observe(), {}

    def step(self, action: dict[str, Any]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the hand, then the fingers. Coming nearer to what is to be done next earns a little."""
        before = self._remaining()
        self.hand = np.clip(self.hand + action["move"], 0, 1)
        if action["grip"] == CLOSE and not self.closed:
            self.closed = True
            self.holding = bool(np.linalg.norm(self.hand - self.block) < self.reach)
        elif action["grip"] == OPEN:
            self.closed = self.holding = False
        if self.holding:
            self.block = self.hand.copy()
        self.steps += 1
        done = not self.holding and bool(np.linalg.norm(self.block - self.goal) < self.reach)
        reward = before - self._remaining() + float(done)
        return self._observe(), reward, done, self.steps == self.limit and not done, {}

    def _remaining(self) -> float:
        """How far the hand has to go: to the block, and with it to the goal; a block in the hand is half the work."""
        carry = float(np.linalg.norm(self.block - self.goal))
        return carry if self.holding else carry + float(np.linalg.norm(self.hand - self.block)) + 0.5

    def _observe(self) -> np.ndarray:
        parts = [self.block - self.hand, self.goal - self.block, self.hand, [self.closed, self.holding]]
        return np.concatenate(parts).astype(np.float32)


def main(steps: int) -> None:
    """Learns, then plays one episode in words."""
    model = aql.AQL(PickAndPlace, seed=0, bins=5)
    print(f"before learning: {model.evaluate(50).mean:.2f}")
    model.learn(steps)
    print(f"after {steps:,} steps: {model.evaluate(50).mean:.2f} (a perfect hand earns about 3)")
    env = PickAndPlace()
    observation, _ = env.reset(seed=1)
    over = False
    while not over:
        action = model.predict(observation)
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        print(f"move {action['move'].round(2)}, {('keep', 'close', 'open')[action['grip']]}")
    print("the block is at the goal" if terminated else "out of time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
