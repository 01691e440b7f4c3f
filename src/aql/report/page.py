"""One self-contained page about runs and sweeps: curves, a table, and what went on inside each run, with its film."""

import base64
import dataclasses
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from aql import metrics, runs
from aql.config import Config
from aql.errors import UserError
from aql.presets import preset
from aql.report import curves, drawing
from aql.report.curves import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILM = "film.mp4"  # in a run's folder, where `aql watch` leaves it
TOLD_ELSEWHERE = ("actor_steps", "seconds", "updates", "return_mean")  # of the metrics of a run
CHART_COLUMNS = 4


def write(paths: Sequence[Path], output: Path, pool: bool = False) -> None:
    """Writes the page about runs, `results.csv` files and folders of sweeps."""
    found = curves.read(paths)
    single_runs = [path for path in paths if (path / runs.CONFIG).is_file()]
    parts = [
        *_curves(found, pool),
        _table(found, pool),
        *(_run(run) for run in dict.fromkeys(single_runs)),
    ]
    tasks = list(dict.fromkeys(curve.task for curve in found))
    title = ", ".join(tasks) if len(tasks) <= 3 else f"{len(tasks)} tasks"
    page = PAGE.format(title=escape(title), count=_count(len(found), "run"), style=STYLE, body="\n".join(parts))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page, encoding="utf-8")


# The parts


def _curves(found: Sequence[Curve], pool: bool) -> Iterator[str]:
    """Returns against steps, and against minutes, which runs of unequal speed may not have in common."""
    yield "<h2>Learning</h2>"
    for axis in get_args(curves.Axis):
        try:
            yield f"<figure>{_picture(drawing.draw(found, axis, pool=pool), f'greedy return against {axis}')}</figure>"
        except UserError as error:
            yield f'<p class="quiet">No curves against {axis}: {escape(str(error))}.</p>'


def _table(found: Sequence[Curve], pool: bool) -> str:
    """The last evaluation of every run, a row for each task and line."""
    rows: dict[tuple[str, str], list[Curve]] = {}
    for curve, label in zip(found, curves.labels(found, pool), strict=True):
        rows.setdefault((curve.task, label), []).append(curve)
    columns: dict[str, list[str]] = {}
    for (task, label), members in rows.items():
        last = np.array([curve.returns[-1] for curve in members])
        low, high = curves.bootstrap(last[:, None], np.random.default_rng(0))
        paper = curves.reference(task)
        cells = {
            "task": task,
            "agent": label,
            "last return": _number(last.mean()),
            "95 % interval": f"{_number(low[0])} to {_number(high[0])}" if len(last) > 1 else "",
            "of each seed": ", ".join(_number(value) for value in last) if len(last) > 1 else "",
            "best": _number(max(curve.returns.max() for curve in members)),
            "steps": f"{max(curve.steps[-1] for curve in members):,.0f}",
            "minutes": f"{max(curve.minutes[-1] for curve in members):.1f}",
            "paper, 200M": _number(paper.final) if paper and paper.final is not None else "",
        }
        for name, cell in cells.items():
            columns.setdefault(name, []).append(cell)
    columns = {name: column for name, column in columns.items() if any(column)}
    header = _cells("th", columns)
    body = "".join(_cells("td", row) for row in zip(*columns.values(), strict=True))
    return f'<h2>Results</h2>\n<div class="wide"><table><thead>{header}</thead><tbody>{body}</tbody></table></div>'


def _run(run: Path) -> str:
    """What a run decided, its film, and what it measured on the way."""
    config = runs.read_config(run)
    decided = config.to_json()
    usual = preset(config.preset, env=config.env, agent=config.agent).to_json()
    changed = {name: value for name, value in decided.items() if value != usual[name]}
    fields = {field.name: field.metadata["help"] for field in dataclasses.fields(Config)}
    every = "".join(_cells("td", (name, str(value), fields[name])) for name, value in decided.items())
    told = ", ".join(f"{name} {value}" for name, value in changed.items()) or "none"
    return f"""<section>
<h2>{escape(config.env)} <small>{escape(config.agent)}, seed {config.seed}</small></h2>
<p class="quiet">{escape(str(run))} &middot; settings other than those of <b>{escape(config.preset)}</b>:
{escape(told)}</p>
{_film(run)}
{_inside(run)}
<details><summary>all settings</summary><table class="settings"><tbody>{every}</tbody></table></details>
</section>"""


def _film(run: Path) -> str:
    film = run / FILM
    if not film.is_file():
        return f'<p class="quiet">No film yet: <code>aql watch {escape(str(run))}</code> makes one.</p>'
    data = base64.b64encode(film.read_bytes()).decode()
    return f'<video controls loop muted playsinline src="data:video/mp4;base64,{data}"></video>'


def _inside(run: Path) -> str:
    """Small charts of every number that the run reported and that changed, against steps."""
    rows = metrics.read(run)
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name not in TOLD_ELSEWHERE and not name.startswith("eval_") and isinstance(value, int | float):
                series.setdefault(name, []).append((row["actor_steps"], value))
    series = {name: points for name, points in series.items() if len({value for _, value in points}) > 1} | _speed(rows)
    if not series:
        return ""
    return f"<figure>{_picture(_charts(series), 'what learning reports about itself, against actor steps')}</figure>"


def _speed(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Steps per second between reports, from where learning begins."""
    told = [(row["actor_steps"], row["seconds"]) for row in rows if row.get("updates")]
    pairs = itertools.pairwise(told)
    points = [(after, (after - before) / (late - early)) for (before, early), (after, late) in pairs if late > early]
    return {"steps per second": points} if len(points) > 1 else {}


def _charts(series: dict[str, list[tuple[float, float]]]) -> "Figure":
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter

    rows = math.ceil(len(series) / CHART_COLUMNS)
    with mpl.rc_context(drawing.STYLE):
        figure = Figure(figsize=(2.2 * CHART_COLUMNS + 1, 1.5 * rows), layout="constrained")
        for index, (name, points) in enumerate(series.items()):
            axes = figure.add_subplot(rows, CHART_COLUMNS, index + 1)
            axes.plot(*np.array(points).T, color=drawing.COLOURS[0], linewidth=1.2)
            axes.set_title(name.replace("_", " "), size=9)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.yaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    return figure


# Their pieces


def _picture(figure: "Figure", description: str) -> str:
    """The figure inside the page: the same curves give the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "aql", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(description)}" src="data:image/svg+xml;base64,{data}">'


def _cells(tag: str, texts: Iterable[str]) -> str:
    """A row of a table."""
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"


def _number(value: float) -> str:
    """Three digits where returns are small, whole numbers where they are not."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


STYLE = """
:root { color-scheme: light; --ink: #222; --quiet: #666; --line: #e4e4e4; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; max-width: 66rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h1 small, h2 small, .quiet { color: var(--quiet); font-weight: normal; }
h1 small { font-size: 1rem; } .quiet { font-size: .85rem; overflow-wrap: anywhere; }
figure { margin: 0 0 1rem; } img, video { max-width: 100%; height: auto; } video { border-radius: 6px; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; } th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
.wide { overflow-x: auto; } .settings td { text-align: left; white-space: normal; }
summary { cursor: pointer; color: var(--quiet); }
"""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>aql: {title}</title>
<style>{style}</style>
<h1>{title} <small>{count}</small></h1>
{body}
</html>
"""
