"""Pictures of learning curves: a panel per task, a line per agent with its band over seeds."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aql.errors import UserError
from aql.report.curves import Axis, Band, Curve, Reference, band, labels, read, reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; not their yellow, too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY, DARK = "#666666", "#333333"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "svg.fonttype": "none",
}
TRAINING = "#7fb0d0"  # a faint first colour
LABEL_POINTS = 12.0  # height that a label beside a line needs
NOTE_LETTERS = 15  # of the footnote to the inch
NOTE_LINE = 0.13  # height of a line of it in inches
FAR = 2.5  # how many times the highest return a reference may be without flattening the curves


def draw(curves: Sequence[Curve], axis: Axis = "steps", paper: bool = True, pool: bool = False) -> "Figure":
    """The figure; its axes are the panels, in the order of the tasks."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ModuleNotFoundError as error:
        raise UserError("pictures need matplotlib: pip install 'aql[report]'") from error
    labelled = list(zip(curves, labels(curves, pool), strict=True))
    tasks = list(dict.fromkeys(curve.task for curve in curves))
    names = list(dict.fromkeys(label for _, label in labelled))
    styles = {name: Style(*look) for name, look in zip(names, _looks(), strict=False)}
    references = {task: reference(task) if paper else None for task in tasks}
    columns = _columns_for(len(tasks))
    rows = math.ceil(len(tasks) / columns)
    width, height = (6.0, 3.3) if len(tasks) == 1 else (2.9, 2.1)
    inches = width * columns + 1.0
    bands = {
        task: {
            name: band([curve for curve, label in labelled if (curve.task, label) == (task, name)], axis)
            for name in names
            if any((curve.task, label) == (task, name) for curve, label in labelled)
        }
        for task in tasks
    }
    alone = any(line.beyond for lines in bands.values() for line in lines.values())
    note = textwrap.wrap(_note(labelled, any(references.values()), axis, alone), int(NOTE_LETTERS * inches))
    note_inches = 0.13 + NOTE_LINE * len(note)
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine()
        figure = Figure(figsize=(inches, height * rows + 0.3 + note_inches), layout=layout)
        FigureCanvasAgg(figure)
        unlabelled: dict[str, End] = {}  # lines of the row so far
        for index, task in enumerate(tasks):
            axes = figure.add_subplot(rows, columns, index + 1)
            lines = bands[task]
            ends = _panel(axes, lines, styles, references[task], axis)
            axes.set_title((task.partition("/")[2] or task).replace("?", "\n"))  # options go below the name
            if len(curves) == 1:
                ends[0] = ends[0]._replace(text=f"{names[0]}, greedy")
                ends += _training(axes, curves[0], styles[names[0]], axis)
            unlabelled |= {name: End(math.nan, name, styles[name].colour) for name in lines}
            if (index + 1) % columns == 0 or task == tasks[-1]:  # the last of a row has the labels of the row
                _direct_labels(axes, ends + [end for name, end in unlabelled.items() if name not in lines], height)
                unlabelled = {}
        inch = 1 / figure.get_figheight()
        bottom = (note_inches + 0.13) * inch
        x_label = "actor steps" if axis == "steps" else "minutes of training"
        figure.supxlabel(x_label, y=note_inches * inch, va="bottom", size=9, color=DARK)
        figure.supylabel("return of an episode", size=9, color=DARK)
        layout.set(rect=(0, bottom, 1, 1 - bottom), w_pad=0.06, h_pad=0.06)
        figure.text(0.01, 0.07 * inch, "\n".join(note), size=7.5, color=GREY, va="bottom")
    return figure


class Style(NamedTuple):
    """How a line looks."""

    colour: str
    dashes: str


class End(NamedTuple):
    """What stands beside the end of a line: at its height, or below all if it is not in the panel (nan)."""

    y: float
    text: str
    colour: str


def _looks() -> Iterable[tuple[str, str]]:
    """Colours, then the same ones with dashes, and so on without end."""
    dashes = ("-", "--", "-.", (0, (1, 1)))
    for number in range(10_000):
        yield COLOURS[number % len(COLOURS)], dashes[number // len(COLOURS) % len(dashes)]  # type: ignore


def _columns_for(panels: int) -> int:
    usual = panels if panels <= 3 else 2 if panels == 4 else 3 if panels <= 9 else 4 if panels <= 16 else 5
    # A last row that is full keeps the labels at its end out of the way of the rows above.
    return next((columns for columns in (usual, usual + 1, usual - 1) if panels % columns == 0), usual)


def _panel(
    axes: "Axes", lines: dict[str, Band], styles: dict[str, Style], paper: Reference | None, axis: Axis
) -> list[End]:
    """Draws one task; the ends of its lines."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ends = []
    right = max(x[-1] for line in lines.values() for x in (line.x, *(x for x, _ in line.beyond)))
    for name, line in lines.items():
        colour, dashes = styles[name]
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
        marker = "o" if len(line.x) == 1 else None
        axes.plot(line.x, line.mean, dashes, color=colour, linewidth=1.6, label=name, marker=marker, markersize=4)
        for x, returns in line.beyond:
            axes.plot(x, returns, dashes, color=colour, linewidth=0.8, label=f"{name}, one run")
        ends.append(End(float(line.mean[-1]), name, colour))
    shown = [y for line in lines.values() for y in (line.low, line.high, *(returns for _, returns in line.beyond))]
    seen = [value for y in shown for value in (y.min(), y.max())]
    if paper is not None:
        if axis == "steps":
            inside = np.append(paper.steps[paper.steps < right], right)
            returns = np.interp(inside, paper.steps, paper.returns)
            axes.plot(inside, returns, ":", color=GREY, linewidth=1.2, label="paper")
            seen += [returns.min(), returns.max()]
        if paper.final is not None and paper.final <= FAR * max(seen):
            seen.append(paper.final)
    low, high = min(0.0, *seen), max(seen)
    margin = 0.05 * ((high - low) or 1.0)
    low, high = low - (margin if low < 0 else 0), high + margin
    if paper is not None and paper.final is not None:
        ends.append(_final(axes, paper.final, high))
    axes.set_ylim(low, high)
    axes.set_xlim(0, right or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if axis == "steps":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return ends


def _final(axes: "Axes", final: float, high: float) -> End:
    """A tick at the right edge where the paper ended; with its number at the top if that is far above the curves."""
    y, marker = (final, "<") if final <= high else (high, "^")
    at_edge = axes.get_yaxis_transform()
    axes.plot([1.0], [y], marker, color=GREY, markersize=5, transform=at_edge, clip_on=False, zorder=5)
    if marker == "^":
        place: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center"}
        axes.annotate(f"{final:.0f}", (1.0, y), xytext=(-5, 0), xycoords=at_edge, color=GREY, size=8, **place)
    return End(y, "paper, 200M", GREY)


def _training(axes: "Axes", curve: Curve, style: Style, axis: Axis) -> list[End]:
    """The returns of the exploring actors, which lag behind and below the greedy ones."""
    x = curve.training_steps if axis == "steps" else curve.training_minutes
    if x is None or curve.training_returns is None or not len(x):
        return []
    axes.plot(x, curve.training_returns, color=style.colour, alpha=0.35, linewidth=1.0, zorder=1, label="training")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, curve.training_returns.min()), max(high, 1.05 * curve.training_returns.max()))
    return [End(float(curve.training_returns[-1]), "training", TRAINING)]


def _direct_labels(axes: "Axes", ends: list[End], height: float) -> None:
    """Writes the labels to the right of the panel, at the heights of their lines but never over each other."""
    low, high = axes.get_ylim()
    gap = (high - low) * LABEL_POINTS / (72 * 0.8 * height)
    absent = low - gap * sum(math.isnan(end.y) for end in ends)
    ordered = sorted(ends, key=lambda end: absent if math.isnan(end.y) else end.y)
    heights: list[float] = []
    for end in ordered:
        y = low + gap / 2 if math.isnan(end.y) else end.y
        heights.append(max(y, heights[-1] + gap) if heights else y)
    highest = high
    for index in reversed(range(len(heights))):  # what was pushed out at the top goes down again
        heights[index] = min(heights[index], highest)
        highest = heights[index] - gap
    for end, y in zip(ordered, heights, strict=True):
        axes.annotate(
            end.text,
            (1.0, y),
            xycoords=axes.get_yaxis_transform(),
            xytext=(8, 0),
            textcoords="offset points",
            color=end.colour,
            va="center",
            size=9,
            annotation_clip=False,
        )


def _note(labelled: Sequence[tuple[Curve, str]], paper: bool, axis: Axis, alone: bool) -> str:
    counts = [sum((c.task, n) == (curve.task, name) for c, n in labelled) for curve, name in labelled]
    parts = ["greedy evaluations of one run"]
    if max(counts) > 1:
        seeds = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
        parts = [f"mean of greedy evaluations over {seeds} seeds with a bootstrap 95 % band"]
    if alone:
        parts.append("thin where one goes on alone")
    if paper:
        dotted = "dotted the paper's AQL at the same step, " if axis == "steps" else ""
        whose = "its" if dotted else "the return of the paper's AQL"
        final = "return after 200M steps" if dotted else "after 200M steps"
        parts.append(f"{dotted}\N{BLACK LEFT-POINTING SMALL TRIANGLE} {whose} {final}")
    return "; ".join(parts)


def plot(paths: list[Path], output: Path, x: Axis = "steps", paper: bool = True, pool: bool = False) -> None:
    """Draws the curves of runs, `results.csv` files and folders of sweeps into a picture."""
    figure = draw(read(paths), x, paper, pool)
    formats = figure.canvas.get_supported_filetypes()
    if output.suffix.lstrip(".") not in formats:
        raise UserError(f"{output} has no ending of a picture: name it .png, .svg or .pdf")
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)
