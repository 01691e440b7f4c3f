"""A frame of a film: the environment's picture, and beside it what the agent has in mind."""

from collections.abc import Sequence

import numpy as np

from aql.actions import ActionSpace
from aql.agents.base import Decision, Thought
from aql.envs.base import TimeStep
from aql.report.canvas import Canvas
from aql.report.panel import BACKGROUND, Panel

SIZE = 480  # pixels that a picture should have, about


class Scene:
    """Follows one episode of one environment."""

    def __init__(self, space: ActionSpace, names: Sequence[str], action_repeat: int = 1) -> None:
        self.decision = -1  # of the episode, the first one is 0
        self.episode_return = 0.0
        self._space = space
        self._names = names
        self._action_repeat = action_repeat
        self._panel: Panel | None = None

    def advance(self, now: TimeStep) -> None:
        """Notes what is seen before a decision."""
        self.decision += 1
        self.episode_return += 0.0 if now.first[0] else float(now.reward[0])

    def draw(self, picture: np.ndarray, decision: Decision, thought: Thought) -> np.ndarray:
        """[H, W, 3] uint8, of even height and width as videos want it; always of the same size."""
        picture = enlarge(picture)
        if thought.proposal is None and thought.values is None:
            return beside([picture])
        if self._panel is None:
            self._panel = Panel(self._space, self._names, max(SIZE, picture.shape[0]), thought)
        action = np.asarray(decision.action)[0]
        step = self.decision * self._action_repeat
        return beside([picture, self._panel.draw(thought, action, step, self.episode_return)])


def enlarge(picture: np.ndarray) -> np.ndarray:
    """A small picture with its pixels repeated, so that it can be watched: nothing is blurred."""
    times = max(1, round(SIZE / max(picture.shape[:2])))
    return picture.repeat(times, axis=0).repeat(times, axis=1)


def beside(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """The pictures from left to right, each in the middle of the height."""
    width, height = sum(p.shape[1] for p in pictures), max(p.shape[0] for p in pictures)
    canvas = Canvas(width + width % 2, height + height % 2, BACKGROUND)
    x = 0
    for picture in pictures:
        canvas.picture(x, (height - picture.shape[0]) // 2, picture)
        x += picture.shape[1]
    return canvas.pixels
