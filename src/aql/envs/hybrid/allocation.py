"""Allocation: how many units does each project get? Ten million actions, and the best one is known."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aql.envs.hybrid import drawing

PRICE = 1.0  # of a unit beyond the budget: more than any unit can be worth
GOOD = 0.95  # share of the optimum that counts as a success


class Allocation(gymnasium.Env):
    """Projects of different worth share a budget of units; one decision is an episode.

    Project i with n units earns worth_i * sqrt(n): every further unit earns less. Units beyond the budget have to be
    bought at a price of 1, which they never earn. So no project's best number can be told without the others': each
    one alone would take all it can get.

    Action: the units of each project, 0 to `most`. With ten projects and at most four units: 5^10 = 9.8 million.

    Observation: the projects' worths in [0.1, 1] and the budget, 0.6 to 1.4 units per project.

    Reward: what all projects earn less what was bought, as a share of the optimum: 1 is optimal.
    """

    metadata = drawing.metadata(2)

    def __init__(self, projects: int = 10, most: int = 4, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._earnings = np.sqrt(np.arange(most + 1))  # of a project of worth 1, by units
        self._budgets = (round(0.6 * projects), round(1.4 * projects))
        self.action_space = spaces.MultiDiscrete([most + 1] * projects)
        low, high = ([worth] * projects + [budget] for worth, budget in zip((0.1, 1.0), self._budgets, strict=True))
        self.observation_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """New worths and a new budget."""
        super().reset(seed=seed)
        worth = self.np_random.uniform(0.1, 1, self.action_space.shape)
        budget = self.np_random.integers(*self._budgets, endpoint=True)
        self._observation = np.append(worth, budget).astype(np.float32)
        self._units = np.zeros(len(worth), int)
        return self._observation.copy(), {"success": False}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hands out the units, which ends the episode."""
        self._units = np.asarray(action)
        optimum = self.value(self._observation, self.optimal_action(self._observation))
        share = self.value(self._observation, self._units) / optimum
        return self._observation.copy(), share, True, False, {"success": share >= GOOD}

    def value(self, observation: np.ndarray, units: np.ndarray) -> float:
        """What the projects earn with these units, less the price of those beyond the budget."""
        worth, budget = observation[:-1], float(observation[-1])
        return float(worth @ self._earnings[units]) - PRICE * max(0.0, float(units.sum()) - budget)

    def optimal_action(self, observation: np.ndarray) -> np.ndarray:
        """The units [projects] of the highest value.

        What a unit adds falls with every unit that the project has, so the budget's most valuable units of all
        projects are, in each project, its first ones: taking them is feasible, and nothing is worth more.
        """
        worth, budget = observation[:-1], round(float(observation[-1]))
        added = np.outer(worth, np.diff(self._earnings)).ravel()  # [projects * most]
        taken = np.argsort(added)[-budget:]
        return np.bincount(taken // (len(self._earnings) - 1), minlength=len(worth))

    def render(self) -> np.ndarray:
        """A column for each project: its worth in grey, its units in blue and, beside them, the best ones in green."""
        best = self.optimal_action(self._observation)
        canvas = drawing.Canvas((0, 0), (len(best), 2), 50)
        for i, (worth, units) in enumerate(zip(self._observation[:-1], self._units, strict=True)):
            canvas.box(i + 0.1, 1, 0.8, 0.9 * float(worth), drawing.GREY)
            step = 0.9 / (len(self._earnings) - 1)
            canvas.box(i + 0.1, 0, 0.4, step * int(units), drawing.BLUE)
            canvas.box(i + 0.5, 0, 0.4, step * int(best[i]), drawing.GREEN)
        return canvas.pixels
