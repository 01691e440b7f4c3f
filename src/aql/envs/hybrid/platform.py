"""Platform: run, hop and leap over enemies and gaps.

The task is that of Masson, Ranchod and Konidaris 2016, "Reinforcement Learning with Parameterized Actions", with the
numbers of its public Gym version (gym-platform by Craig Bester), on which P-DQN and MP-DQN have published results.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aql.envs.hybrid import drawing

RUN, HOP, LEAP = range(3)
MOST = (30.0, 720.0, 430.0)  # the parameters' upper bounds, by action; the lower ones are 0

PLATFORMS = ((0.0, 250.0), (475.0, 750.0), (985.0, 1035.0))  # left and right ends; their tops are at height 0
END = 1035.0
WIDTH, HEIGHT = 20.0, 30.0  # of the player and of the enemies; a position is the lower left corner

TICK = 0.05  # seconds
RUN_TICKS = 20
GRAVITY = 9.8
UPWARD = {HOP: 35.0, LEAP: 25.0}  # speed at take-off
MAX_CHANGE = 30.0  # of the horizontal speed in a tick
MAX_SPEED, MAX_SPEED_ON_GROUND = 100.0, 70.0
DECAY = 0.99  # of the horizontal speed in a tick
ENEMY_SPEED = 30.0
SPEED_NOISE = 0.5 * TICK  # deviation, per tick
JUMP_NOISE = 1.0

SHIFT = np.array([WIDTH, 0, 0, ENEMY_SPEED, 0, 0, 0, 0, 0])
SCALE = np.array([END + WIDTH, MAX_SPEED, END, 2 * ENEMY_SPEED, 275, 275, 235, END, 1])


class Platform(gymnasium.Env):
    """Three platforms in a row; an enemy walks to and fro on each of the first two.

    Action: which of run, hop and leap, and a parameter for each; the other two are ignored. Running gains its
    parameter in speed per tick for a second. Hopping (high) and leaping (low) aim as far as their parameter says, but
    change the horizontal speed by 30 at most: far jumps need a run-up. Jumps end on a platform, at rest, or in a gap.

    Observation, each in [0, 1]: the player's position and speed, position and speed of the enemy on its platform,
    the width of this platform and of the next, the gap between them, where this platform begins, and how much higher
    the next one is (0: all are level).

    Reward: the distance won as a share of the whole, so that the return is 1 at the far end, which ends the episode.
    Touching an enemy and falling end it too.
    """

    metadata = drawing.metadata(4)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        parameters = (spaces.Box(0, most, (1,)) for most in MOST)
        self.action_space = spaces.Tuple((spaces.Discrete(3), spaces.Tuple(tuple(parameters))))
        self.observation_space = spaces.Box(0, 1, (9,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """The player at rest at the left end, the enemies at the right ends of their platforms."""
        super().reset(seed=seed)
        self._normals: list[float] = []
        self._x = self._y = self._vx = self._vy = 0.0
        self._enemies = [right - WIDTH for _, right in PLATFORMS[:2]]
        self._enemy_speeds = [-ENEMY_SPEED] * 2
        return self._observe(), {"success": False}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """A second of running, or a whole jump."""
        kind = int(action[0])
        parameter = min(max(float(action[1][kind][0]), 0.0), MOST[kind])
        start = self._x
        if kind == RUN:
            over = any(self._tick(RUN, parameter) for _ in range(RUN_TICKS))
        else:
            over = self._tick(kind, parameter)
            while not over and self._y > 0:
                over = self._tick(kind, parameter)
        success = self._x >= END
        return self._observe(), (self._x - start) / END, over, False, {"success": success}

    def render(self) -> np.ndarray:
        """The scene from the side: [H, W, 3]."""
        canvas = drawing.Canvas((-5, -45), (END + 25, 155), 0.8)
        for left, right in PLATFORMS:
            canvas.box(left, -40, right - left, 40, drawing.GREY)
        for position in self._enemies:
            canvas.box(position, 0, WIDTH, HEIGHT, drawing.RED)
        canvas.box(self._x, self._y, WIDTH, HEIGHT, drawing.BLUE)
        return canvas.pixels

    def _tick(self, kind: int, parameter: float) -> bool:
        """A twentieth of a second; whether the episode is over."""
        grounded = self._on_ground()
        if not grounded:
            self._vy -= GRAVITY * TICK
        elif kind == RUN:
            self._vx += min(parameter, MAX_CHANGE)
        else:
            upward = UPWARD[kind]
            wanted = parameter / (2 * upward / GRAVITY + 1) - self._vx - JUMP_NOISE * abs(self._normal())
            self._vx += min(max(wanted, -MAX_CHANGE), MAX_CHANGE)
            self._vy = upward - JUMP_NOISE * abs(self._normal())
        fastest = MAX_SPEED_ON_GROUND if grounded else MAX_SPEED
        self._vx = min(max(self._vx - SPEED_NOISE * abs(self._normal()), 0.0), fastest)
        self._x = min(self._x + self._vx * TICK, END)
        self._y += self._vy * TICK
        self._vx *= DECAY
        self._move_enemy(self._platform_of_enemy())

        if self._y < 0 and any(-self._y <= min(self._x + WIDTH - a, b - self._x) for a, b in PLATFORMS):
            self._y = self._vx = self._vy = 0.0  # it stuck in the platform less deep than in from the side: it landed
        fell = self._y < 0
        hit = self._y < HEIGHT and any(abs(self._x - enemy) < WIDTH for enemy in self._enemies)
        return fell or hit or self._x >= END

    def _move_enemy(self, i: int) -> None:
        left, right = PLATFORMS[i][0], PLATFORMS[i][1] - WIDTH
        speed = self._enemy_speeds[i] + SPEED_NOISE * self._normal()
        speed = min(max(speed, -ENEMY_SPEED), ENEMY_SPEED)
        position = self._enemies[i] + speed * TICK
        if position <= left:
            speed = abs(speed)
        elif position >= right:
            speed = -abs(speed)
        self._enemy_speeds[i], self._enemies[i] = speed, min(max(position, left), right)

    def _on_ground(self) -> bool:
        return self._y == 0 and any(left - WIDTH <= self._x <= right for left, right in PLATFORMS)

    def _platform_of_enemy(self) -> int:
        """The enemy that moves and is seen: the first one until the player is on the second platform."""
        return int(self._x > PLATFORMS[1][0])

    def _observe(self) -> np.ndarray:
        enemy = self._platform_of_enemy()
        here = sum(self._x >= left for left, _ in PLATFORMS[1:])
        left, right = PLATFORMS[here]
        next_left, next_right = PLATFORMS[here + 1] if here < 2 else (right, right)
        values = (
            self._x,
            self._vx,
            self._enemies[enemy],
            self._enemy_speeds[enemy],
            right - left,
            next_right - next_left,
            next_left - right,
            left,
            0.0,
        )
        return ((np.array(values) + SHIFT) / SCALE).astype(np.float32)

    def _normal(self) -> float:
        """A standard normal number; one by one they would take most of the time."""
        if not self._normals:
            self._normals = self.np_random.standard_normal(256).tolist()
        return self._normals.pop()
