"""Agents that users pick instead, side by side: their defaults, the same core, tasks and minutes.

    python benchmarks/peers/run.py [--core 1] [--minutes 6] [--seeds 1] [--peers aql,sbx-sac] [--tasks walker-walk]
        [--venv .venv-peers] [--out runs/peers] [--output benchmarks/results/peers.csv] [--plot docs/peers.png]

- control tasks, actions held only where an agent's own preset says so; greedy evaluations of 5 episodes on the way that
  do not count as minutes;
- `--spaces benchmarks/results/peers_spaces.csv`: steps a second with 3528 actions on a trivial environment, and which
  action spaces are refused.

The peers get a virtual environment of their own, made on the first call. Called again, it goes on: finished cells are
kept, a cell that was cut off begins anew. One cell at a time: the others would share its caches and its clock.
"""

import argparse
import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aql.report.curves import Axis, Curve, band
from aql.report.drawing import COLOURS, STYLE

HERE = Path(__file__).parent
LEARNERS = ("aql", "sbx-sac", "sbx-td3", "sbx-tqc", "sbx-crossq", "sb3-sac")
CHOOSERS = ("aql", "sbx-dqn", "sb3-dqn", "sb3-ppo", "sb3-sac")
TASKS = ("walker-walk", "cheetah-run", "cartpole-swingup")
SPACES = ("Discrete", "MultiDiscrete", "Tuple", "Dict")


def environment(folder: Path) -> Path:
    """The Python of the peers, installed if it is not there or not as `requirements.txt` asks."""
    python, stamp, wanted = folder / "bin" / "python", folder / ".installed", HERE / "requirements.txt"
    asked = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not (python.exists() and stamp.exists() and stamp.read_text() == asked):
        print(f"installing the peers into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(wanted)], check=True)
        stamp.write_text(asked)
    return python.absolute()


def run(peer: str, arguments: list[str], cell: Path, core: int, venv: Path) -> bool:
    """Runs a cell if it has not finished; whether it has now."""
    if cell.exists():
        return True
    python = sys.executable if peer == "aql" else str(environment(venv))
    command = [python, str(HERE / "worker.py"), *arguments, "--core", str(core), "--output", str(cell)]
    # One thread for everybody, and everybody compiles anew.
    single = {"PJRT_NPROC": "1", "OMP_NUM_THREADS": "1", "AQL_COMPILE_CACHE": ""}
    return subprocess.run(command, env=os.environ | single, check=False).returncode == 0


def collect(folder: Path, output: Path) -> None:
    """All finished cells in one file, those of earlier calls too."""
    rows: list[dict[str, str]] = []
    for cell in sorted(folder.glob("*.csv")):
        with cell.open(newline="") as file:
            rows += csv.DictReader(file)
    if rows:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("w", newline="") as file:
            # Cells of earlier versions lack columns.
            writer = csv.DictWriter(file, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def read(path: Path) -> list[Curve]:
    """The curve of each cell."""
    cells: dict[tuple[str, str, int], list[tuple[float, ...]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            point = (float(row["steps"]), float(row["seconds"]) / 60, float(row["return"]))
            cells.setdefault((row["task"], row["peer"], int(row["seed"])), []).append(point)
    return [
        Curve(task, peer, "defaults", seed, "", *np.array(points).T) for (task, peer, seed), points in cells.items()
    ]


def plot(curves: Sequence[Curve], output: Path) -> None:
    """Return against minutes above, against steps below; a column for each task."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    tasks, peers = (list(dict.fromkeys(getattr(curve, name) for curve in curves)) for name in ("task", "agent"))
    axes_of: dict[Axis, str] = {"minutes": "minutes of training on one core", "steps": "environment steps"}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3 * len(tasks) + 1.2, 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(2, len(tasks), squeeze=False)
        for row, (axis, label) in zip(panels, axes_of.items(), strict=True):
            for axes, task in zip(row, tasks, strict=True):
                for peer, colour in zip(peers, COLOURS, strict=False):
                    found = [curve for curve in curves if (curve.task, curve.agent) == (task, peer)]
                    if found:
                        line = band(found, axis)
                        axes.plot(line.x, line.mean, color=colour, linewidth=2 if peer == "aql" else 1.2, label=peer)
                        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
                axes.set_title(task)
                axes.set_xlabel(label, size=8)
                axes.set_ylim(0, 1000)
                if axis == "steps":  # the fastest makes ten times as many as the slowest, and more
                    axes.set_xscale("log")
                    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        figure.supylabel("greedy return", size=9)
        lines = {line.get_label(): line for axes in panels.flat for line in axes.get_lines()}
        figure.legend(lines.values(), lines.keys(), loc="outside right upper", frameon=False, fontsize=8)
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, dpi=150)


def show(path: Path) -> None:
    """The last evaluation of each cell."""
    print(f"{'peer':12} {'task':18} {'seed':>4} {'steps':>10} {'steps/s':>8} {'minutes':>8} {'return':>7}")
    for curve in read(path):
        steps, minutes, last = curve.steps[-1], curve.minutes[-1], curve.returns[-1]
        speed = steps / minutes / 60
        print(
            f"{curve.agent:12} {curve.task:18} {curve.seed:4} {steps:10,.0f} {speed:8,.0f} {minutes:8.1f} {last:7.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=0, help="the core that everybody runs on")
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--peers", help=f"{','.join(LEARNERS)}; with --spaces {','.join(CHOOSERS)}")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--every", type=float, default=30, help="seconds between evaluations")
    parser.add_argument("--venv", type=Path, default=Path(".venv-peers"), help="where the peers are installed")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"), help="where finished cells are kept")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/peers.csv"))
    parser.add_argument("--plot", type=Path, help="draws --output, finished or not")
    parser.add_argument("--spaces", type=Path, help="a CSV of action spaces, instead of learning")
    options = parser.parse_args()
    output = options.spaces or options.output
    peers = options.peers.split(",") if options.peers else CHOOSERS if options.spaces else LEARNERS
    if options.spaces:
        folder = options.out / "spaces"
        orders = [(peer, f"{peer}-{space}", ["spaces", peer, space]) for space in SPACES for peer in peers]
    else:
        folder = options.out / f"{options.minutes:g}min"
        length = ["--minutes", str(options.minutes), "--every", str(options.every)]
        orders = [
            (peer, f"{peer}-{task}-s{seed}", ["learn", peer, task, "--seed", str(seed), *length])
            for seed in range(options.seeds)
            for task in options.tasks.split(",")
            for peer in peers
        ]
    failed = []
    for peer, name, arguments in orders:
        print(name, flush=True)
        if not run(peer, arguments, folder / f"{name}.csv", options.core, options.venv):
            failed.append(name)
        collect(folder, output)
    if output.exists():
        if options.spaces:
            print(output.read_text())
        else:
            show(output)
            if options.plot:
                plot(read(output), options.plot)
    if failed:
        raise SystemExit(f"failed, see above: {', '.join(failed)}; the same command tries them again")


if __name__ == "__main__":
    main()
