"""What an agent has in mind, drawn beside what it does: its proposal for each sub-action, and its candidates' Q."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from aql.actions import ActionSpace, Discrete, SubAction
from aql.agents.base import Thought
from aql.report.canvas import Canvas, Colour

WIDTH = 480
MARGIN = 14
HEADER = 62  # pixels of the lines above the cells
CALM = 0.98  # how much of the range of Q a frame keeps from the one before
VALUES = 116  # pixels of the candidates' Q, with its caption, below the cells
SHAPE = 2.6  # width to height that a cell should have
DENSITY_SLOTS = 41  # of a Gaussian
VALUE_SLOTS = 60

BACKGROUND, SLOT, DIM, BRIGHT = (18, 20, 26), (36, 40, 50), (140, 148, 162), (232, 236, 242)
BLUE, GREY, ORANGE = (86, 140, 232), (112, 118, 132), (255, 168, 52)


class Cell(NamedTuple):
    """A place in the panel, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Panel:
    """Draws a state's `Thought` at a time; the first one tells what there is to draw, and where.

    A sub-action has a cell with a slot for each choice: its probability, given the sub-actions before it, is how far
    the slot is filled, and the chosen one is orange. A continuous one has the density of its Gaussian. Below are the
    candidates by how far their Q is behind the best one, a*, at the right; those of the proposal are blue. What a state
    is worth changes far more in an episode than what an action changes, so that Q itself would show nothing.
    """

    def __init__(self, space: ActionSpace, names: Sequence[str], height: int, thought: Thought) -> None:
        self._space = space
        self._spread = 1e-6  # of the candidates' Q: it shrinks slowly, so that the picture is calm
        has_proposal, has_values = thought.proposal is not None, thought.values is not None
        bottom = height - (VALUES if has_values and has_proposal else 0)
        self._cells = grid(space.dimensions, Cell(MARGIN, HEADER, WIDTH - 2 * MARGIN, bottom - HEADER))
        top = bottom if has_proposal else HEADER
        self._values = Cell(MARGIN, top + 24, WIDTH - 2 * MARGIN, min(height - top, 2 * VALUES) - 46)
        self._paper = Canvas(WIDTH, height, BACKGROUND)
        if has_proposal:
            caption = "proposal" if has_values else "policy"
            end = self._paper.text(MARGIN, HEADER - 12, f"{caption}: how likely each choice is", 12, DIM)
            self._legend(end, HEADER - 12, (("chosen", ORANGE),))
            for name, cell in zip(names, self._cells, strict=True):
                self._title(cell, name)
        if thought.values is not None:
            self._caption(thought.values.shape[-1], int(np.sum(np.asarray(thought.proposed))), top + 14)

    def draw(self, thought: Thought, action: np.ndarray, step: int, episode_return: float) -> np.ndarray:
        """[H, W, 3] for the first of the states that the thought is about, and its action [D]."""
        canvas = self._paper.copy()
        canvas.text(MARGIN, 28, f"step {step}", 17, BRIGHT)
        canvas.text(WIDTH - MARGIN, 28, f"return {number(episode_return)}", 17, BRIGHT, "right")
        if thought.proposal is not None:
            proposal = [np.asarray(leaf) for leaf in thought.proposal]
            probability, mean, std = proposal[0][0], proposal[1][0], float(proposal[2])
            chosen = np.asarray(self._space.to_index(jnp.asarray(action)))
            for d, cell in enumerate(self._cells):
                choices = int(self._space.num_choices[d])
                if choices:
                    _bars(canvas, _below_title(cell), probability[d, :choices], int(chosen[d]))
                else:
                    values = np.linspace(-1, 1, DENSITY_SLOTS)
                    density = np.exp(-0.5 * np.square((values - mean[d]) / std))
                    _bars(canvas, _below_title(cell), density, int(np.argmin(np.abs(values - action[d]))))
                self._value(canvas, cell, self._space.subactions[d], float(action[d]))
        if thought.values is not None:
            self._histogram(canvas, np.asarray(thought.values)[0], np.asarray(thought.proposed))
        return canvas.pixels

    def _title(self, cell: Cell, name: str) -> None:
        words = re.sub(r"[\[\]'_]+", " ", name).strip()
        room = round((cell.width - 30) / (0.6 * _size(cell)))  # letters, beside the chosen value
        if len(words) > room:  # similar names begin alike and end differently
            words = f"{words[: room - 3]}…{words[-2:]}"
        if _has_title(cell):
            self._paper.text(cell.x, cell.y + _size(cell), words, _size(cell), DIM)

    def _value(self, canvas: Canvas, cell: Cell, sub: SubAction, value: float) -> None:
        """What was chosen, in the environment's units."""
        in_units = value if isinstance(sub, Discrete) else sub.low + (value + 1) / 2 * (sub.high - sub.low)
        if _has_title(cell):
            canvas.text(cell.x + cell.width, cell.y + _size(cell), number(in_units), _size(cell), ORANGE, "right")

    def _caption(self, candidates: int, proposed: int, y: float) -> None:
        kinds: list[tuple[str, Colour]] = [("best, a*", ORANGE)]
        if proposed:
            kinds = [(f"{proposed} proposed", BLUE), (f"{candidates - proposed} others", GREY), *kinds]
        end = self._paper.text(MARGIN, y, f"Q of {candidates:,} candidates, behind a*", 12, DIM)
        self._legend(end, y, kinds)

    def _legend(self, x: float, y: float, kinds: Sequence[tuple[str, Colour]]) -> None:
        for words, colour in kinds:
            self._paper.box(x + 14, y - 9, 9, 9, colour)
            x = self._paper.text(x + 28, y, words, 12, DIM)

    def _histogram(self, canvas: Canvas, values: np.ndarray, proposed: np.ndarray) -> None:
        """How many candidates [C] are how far behind the best."""
        allowed = np.isfinite(values)
        values, proposed = values[allowed], proposed[allowed]
        best = float(values.max())
        self._spread = max(best - float(values.min()), CALM * self._spread)
        x, y, width, height = self._values
        behind = np.maximum(values - best, -self._spread)
        counts = [np.histogram(behind[kind], VALUE_SLOTS, (-self._spread, 0))[0] for kind in (proposed, ~proposed)]
        scale = height / max(1, int(np.max(counts[0] + counts[1])))
        canvas.box(x, y, width, height, SLOT)
        slot = width / VALUE_SLOTS
        for i, (ours, others) in enumerate(zip(*counts, strict=True)):
            left, top = x + i * slot, y + height - ours * scale
            canvas.box(left, top, slot - 1, ours * scale, BLUE)
            canvas.box(left, top - others * scale, slot - 1, others * scale, GREY)
        canvas.box(x + width - 3, y, 3, height, ORANGE)
        below = y + height + 15
        canvas.text(x, below, number(-self._spread), 11, DIM)
        canvas.text(x + width, below, f"Q(a*) {number(best)}", 11, ORANGE, "right")


def grid(count: int, area: Cell) -> list[Cell]:
    """As many cells as there are sub-actions, row by row, nearest to their best shape."""

    def misfit(columns: int) -> float:
        rows = -(-count // columns)
        return abs(math.log(area.width / columns / (area.height / rows) / SHAPE))

    columns = min(range(1, count + 1), key=misfit)
    width, height = area.width / columns, area.height / -(-count // columns)
    gap_x, gap_y = min(12.0, 0.1 * width), min(14.0, 0.15 * height)
    wider = gap_x / columns  # so that the last column ends where the area does
    return [
        Cell(
            area.x + i % columns * (width + wider),
            area.y + i // columns * height,
            width - gap_x + wider,
            height - gap_y,
        )
        for i in range(count)
    ]


def number(value: float) -> str:
    """As short as it can be read."""
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _size(cell: Cell) -> int:
    """Of the letters in a cell."""
    return 13 if cell.height > 60 else 11


def _has_title(cell: Cell) -> bool:
    """Whether there is room for one."""
    return cell.height > 34


def _below_title(cell: Cell) -> Cell:
    title = _size(cell) + 5 if _has_title(cell) else 0
    return Cell(cell.x, cell.y + title, cell.width, cell.height - title)


def _bars(canvas: Canvas, area: Cell, weights: np.ndarray, chosen: int) -> None:
    """A slot for each weight in 0..1, filled so far, above a mark for the chosen one. Too many share slots."""
    most = int(area.width // 2)
    if len(weights) > most:
        starts = np.linspace(0, len(weights), most, endpoint=False).astype(int)
        chosen = int(np.searchsorted(starts, chosen, side="right")) - 1
        weights = np.minimum(np.add.reduceat(weights, starts), 1)
    slot = area.width / len(weights)
    gap = 3 if slot > 16 else 2 if slot > 6 else 1 if slot > 3 else 0
    floor = area.y + area.height - 5
    for i, weight in enumerate(weights):
        x, filled = area.x + i * slot, float(weight) * (floor - area.y)
        canvas.box(x, area.y, slot - gap, floor - area.y, SLOT)
        canvas.box(x, floor - filled, slot - gap, filled, ORANGE if i == chosen else BLUE)
    canvas.box(area.x + chosen * slot, floor + 2, max(2.0, slot - gap), 3, ORANGE)
