"""Many runs: every task, agent and seed of a suite, each in a process of its own, resumable at any point.

A cell of the sweep is one run, the folder `OUT/<task>/<agent>/s<seed>` (a `/` in the task becomes `_`), with the
errors of its process beside it in `s<seed>.log`. What is done is read from these folders alone: a cell is finished
once its metrics have the evaluation at its last step, and begun once it has a config. `OUT/results.csv` has every
evaluation of the finished cells.
"""

from aql.sweep.results import RESULTS, write_results
from aql.sweep.runner import describe, run
from aql.sweep.suites import Cell, Suite, Task, config_hash, expand, load, parse_settings, select, shipped

__all__ = [
    "RESULTS",
    "Cell",
    "Suite",
    "Task",
    "config_hash",
    "describe",
    "expand",
    "load",
    "parse_settings",
    "run",
    "select",
    "shipped",
    "write_results",
]
