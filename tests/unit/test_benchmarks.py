"""What benchmarks compute from their measurements: a mistake there looks like a result."""

import math
from pathlib import Path

import jax
import mean_curve
import numpy as np
import pytest
import tables
from growth import Point, exponents
from training_speed import products


def test_products_are_those_that_the_result_needs_as_often_as_they_are_done() -> None:
    def function(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        _ = w @ v
        y, _ = jax.lax.scan(lambda y, _: (y @ w, None), x, None, length=3)
        return jax.jit(lambda y: y @ v)(y)

    found = products(function, np.ones((4, 5)), np.ones((5, 5)), np.ones((5, 7)))
    assert {(p.left, p.right, p.times, p.flops) for p in found} == {((4, 5), (5, 5), 3, 600), ((4, 5), (5, 7), 1, 280)}


def test_exponents_are_of_the_cost() -> None:
    speeds = [Point("decisions", "D", "aql", x, 100 / x**2, "1/s") for x in (1, 2, 4, 8)]
    sizes = [Point("memory", "steps", "aql", x, max(x, 4), "bytes") for x in (1, 2, 4, 8)]
    assert exponents(speeds) == pytest.approx((2, 2))
    assert exponents(sizes) == pytest.approx((0.3, 1))


def test_means_are_over_tasks_of_the_last_evaluations_up_to_a_step() -> None:
    curves = {
        ("walker-walk", "aql"): {0: [(10, 0.0, 100.0), (20, 0.0, 900.0)], 1: [(10, 0.0, 300.0)]},
        ("walker-run", "aql"): {0: [(10, 0.0, 50.0)]},
        ("walker-walk", "exact"): {0: [(10, 0.0, 1.0)]},
        ("walker-run", "exact"): {},
    }
    tasks = ["walker-walk", "walker-run"]
    assert tables.mean(curves, "aql", tasks, at=None) == 325
    assert tables.mean(curves, "aql", tasks, at=10) == 125
    assert math.isnan(tables.mean(curves, "exact", tasks, at=None))
    assert tables.final("walker-walk") == pytest.approx(966, abs=3)
    assert math.isnan(tables.final("dog-run"))


def test_a_mark_is_passed_by_the_first_evaluation_with_no_less() -> None:
    seeds = {1: [(10, 60.0, 30.0), (20, 120.0, 20.0)], 0: [(10, 60.0, 10.0), (20, 150.0, 30.0), (30, 180.0, 50.0)]}
    assert tables.passed(seeds, 30) == [(20, 150.0, 30.0), (10, 60.0, 30.0)]
    assert tables.passed(seeds, 40) == [(30, 180.0, 50.0), None]
    assert tables.cell(seeds, None, None, 40) == "50, 20 (0.03k); the paper's: 0.03k, never"
    assert tables.cell(seeds, 20, 30, None) == "30, 20 (0.02k); 30 after 2.5, 1.0 min"


def test_progress_is_told_beside_the_paper_and_published_agents() -> None:
    walk = [(steps * 100, 60.0 * steps, value) for steps, value in enumerate((100.0, 500.0, 970.0, 900.0, 960.0), 1)]
    curves = {
        ("walker-walk", "aql"): {0: walk},
        ("stacker-stack_4", "aql"): {0: walk[:1], 1: walk[:2]},
        ("walker-walk", "exact"): {0: walk},
    }
    _, first, second, means = tables.progress(curves, [100, 200, 500])
    assert first[:-5] == ["walker-walk", "100", "500", "960", "930", "0.3k", "5"]
    assert first[-4:] == ["896", "969", "979", "965"]
    assert second[:-5] == ["stacker-stack_4", "100", "500 (1)", "", "100, 500", "0.1k, 0.1k", "2"]
    assert second[-4:] == ["", "", "", "77"]
    assert (means[0], means[1], means[3]) == ("mean", "100", "630")  # (960 + (100 + 500) / 2) / 2


def test_published_agents_are_compared_on_the_tasks_that_both_have() -> None:
    curves = {
        ("walker-walk", "aql"): {0: [(100_000, 60.0, 900.0)], 1: [(500_000, 60.0, 940.0), (600_000, 60.0, 0.0)]},
        ("stacker-stack_4", "aql"): {0: [(steps, 60.0, float(steps)) for steps in range(10, 80, 10)]},
    }
    rows = {name: row for name, *row in tables.comparison(curves)}
    assert rows["SAC, 500k"] == ["1", "896", "920", "966"]
    assert rows["D4PG, 5M"] == ["2", "521", "490", "523"]  # (965 + 77) / 2, (920 + 60) / 2: the last three of seven


def test_a_task_that_has_ended_counts_with_its_last_evaluation() -> None:
    curves = {
        "short": {0: [(10, 1.0, 100.0)], 1: [(10, 1.0, 300.0), (20, 2.0, 500.0)]},
        "long": {0: [(5, 1.0, 0.0), (20, 2.0, 700.0), (30, 3.0, 900.0)]},
    }
    assert mean_curve.mean_over_tasks(curves) == [(10, 0.0, 100.0), (20, 0.0, 500.0), (30, 0.0, 600.0)]
    curves["long"][0].append((3_000_000, 9.0, 0.0))
    assert mean_curve.mean_over_tasks(curves)[-1] == (1_000_000, 0.0, 600.0)


def test_published_means_are_over_the_papers_tasks() -> None:
    assert len(mean_curve.tasks()) == 39
    assert mean_curve.published_means(mean_curve.tasks())["D4PG"] == pytest.approx(481, abs=0.5)
    assert mean_curve.papers_averages()["AQL"][-1][2] == pytest.approx(571, abs=2)


def test_a_run_that_is_in_two_files_is_refused(tmp_path: Path) -> None:
    row = "suite,task,agent,seed,actor_steps,seconds,return\nx,control/walker-walk,aql,0,100,1.0,50.0\n"
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(row)
    assert tables.read([tmp_path / "a.csv"], "return") == {("walker-walk", "aql"): {0: [(100, 1.0, 50.0)]}}
    with pytest.raises(SystemExit, match=r"control/walker-walk aql 0 is in .*a\.csv and in .*b\.csv"):
        tables.read([tmp_path / "a.csv", tmp_path / "b.csv"], "return")
