"""Moving and Sliding: a point that accelerates, turns or brakes until it rests inside a circle.

The tasks are those of the public collection gym-hybrid (Thomas Hirtz), which names Xiong et al. 2018 (P-DQN) and
Fan et al. 2019 (H-PPO) as its origins; its numbers are kept. Where its text and its physics disagree, its text
counts: a sliding point adds the push to its velocity as vectors are added, and shows that velocity.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aql.envs.hybrid import drawing

ACCELERATE, TURN, BRAKE = range(3)

FIELD = 1.0  # the field reaches from -1 to 1 in both directions
RADIUS = 0.1  # of the target
MAX_TURN = math.pi / 2  # radians in one step
MAX_ACCELERATION = 0.5  # speed gained in one step
BRAKING = 0.1  # speed lost in one step
SECONDS = 0.005  # in a step
LIMIT = 200  # steps in an episode
PENALTY = 0.001  # for every step

FASTEST = LIMIT * MAX_ACCELERATION
FARTHEST = FIELD + SECONDS * FASTEST  # the last step may lead out of the field


class Moving(gymnasium.Env):
    """A point whose velocity always follows its heading.

    Action: which of accelerate, turn and brake, and (acceleration in [0, 1], rotation in [-1, 1]), the parameters
    of the first two; the other one's is ignored.

    Observation: x, y, speed, cosine and sine of the heading, the target's x and y, the distance to it, whether the
    point is inside, and the share of the time that is gone.

    Reward: the distance won less 0.001, and 1 more for resting inside the target, which ends the episode. Leaving the
    field and running out of time cost 1 instead and end it too; time is part of the state, so that is no truncation.
    """

    metadata = drawing.metadata(30)
    slides = False

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        parameters = spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32))
        self.action_space = spaces.Tuple((spaces.Discrete(3), parameters))
        speed = [(-FASTEST, FASTEST)] * 2 if self.slides else [(0, FASTEST)]
        bounds = [
            *[(-FARTHEST, FARTHEST)] * 2,
            *speed,
            *[(-1, 1)] * 2,
            *[(-FIELD, FIELD)] * 2,
            (0, 2 * math.sqrt(2) * FARTHEST),
            *[(0, 1)] * 2,
        ]
        low, high = np.array(bounds, np.float32).T
        self.observation_space = spaces.Box(low, high)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """A new target, and the point at rest; both may be anywhere, the point with any heading."""
        super().reset(seed=seed)
        inner = FIELD - RADIUS
        self._target_x, self._target_y = self.np_random.uniform(-inner, inner, 2).tolist()
        self._x, self._y = self.np_random.uniform(-FIELD, FIELD, 2).tolist()
        self._heading = float(self.np_random.uniform(0, 2 * math.pi))
        self._vx = self._vy = 0.0
        self._steps = 0
        self._distance = self._measure()
        return self._observe(), {"success": False}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Accelerates, turns or brakes, and moves."""
        kind = int(action[0])
        acceleration, rotation = np.asarray(action[1]).tolist()
        if kind == ACCELERATE:
            push = MAX_ACCELERATION * min(max(acceleration, 0.0), 1.0)
            self._vx += push * math.cos(self._heading)
            self._vy += push * math.sin(self._heading)
        elif kind == TURN:
            self._heading = (self._heading + MAX_TURN * min(max(rotation, -1.0), 1.0)) % (2 * math.pi)
            if not self.slides:
                speed = math.hypot(self._vx, self._vy)
                self._vx, self._vy = speed * math.cos(self._heading), speed * math.sin(self._heading)
        else:
            speed = math.hypot(self._vx, self._vy)
            kept = 1 - BRAKING / speed if speed > BRAKING + 1e-9 else 0.0  # at rest it rests exactly
            self._vx, self._vy = kept * self._vx, kept * self._vy
        self._x += SECONDS * self._vx
        self._y += SECONDS * self._vy
        self._steps += 1
        before, self._distance = self._distance, self._measure()

        success = self._distance < RADIUS and self._vx == 0 == self._vy
        left = abs(self._x) > FIELD or abs(self._y) > FIELD
        lost = not success and (left or self._steps >= LIMIT)
        reward = -1.0 if lost else before - self._distance - PENALTY + success
        return self._observe(), reward, success or lost, False, {"success": success}

    def render(self) -> np.ndarray:
        """The field from above: [H, W, 3]."""
        canvas = drawing.Canvas((-FIELD, -FIELD), (FIELD, FIELD), 200)
        canvas.disc(self._target_x, self._target_y, RADIUS, drawing.GREEN)
        canvas.disc(self._x, self._y, 0.05, drawing.BLUE)
        nose_x, nose_y = 0.05 * math.cos(self._heading), 0.05 * math.sin(self._heading)
        canvas.disc(self._x + nose_x, self._y + nose_y, 0.02, drawing.BLACK)
        return canvas.pixels

    def _measure(self) -> float:
        return math.hypot(self._x - self._target_x, self._y - self._target_y)

    def _observe(self) -> np.ndarray:
        velocity = (self._vx, self._vy) if self.slides else (math.hypot(self._vx, self._vy),)
        values = (
            self._x,
            self._y,
            *velocity,
            math.cos(self._heading),
            math.sin(self._heading),
            self._target_x,
            self._target_y,
            self._distance,
            self._distance < RADIUS,
            self._steps / LIMIT,
        )
        return np.array(values, np.float32)


class Sliding(Moving):
    """A point with inertia: turning changes its heading and not its velocity, to which every push is added.

    All else is as in Moving, but that the velocity's x and y are observed instead of the speed, without which the
    state would not be Markov.
    """

    slides = True
