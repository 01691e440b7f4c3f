"""Learning curves: what is read, the band in literal numbers, and what is in the figure."""

import json
from pathlib import Path

import numpy as np
import pytest

from aql import cli, sweep
from aql.config import Config
from aql.errors import UserError
from aql.report import curves, drawing
from aql.sweep import results

pytest.importorskip("matplotlib")


def curve(
    task: str = "toy/chain",
    agent: str = "aql",
    seed: int = 0,
    x: tuple[float, ...] = (10, 20),
    y: tuple[float, ...] = (0, 1),
    preset: str = "fast",
    config: str = "abcdef123456",
) -> curves.Curve:
    steps = np.array(x, float)
    return curves.Curve(task, agent, preset, seed, config, steps, steps / 60, np.array(y, float))


def write_run(run: Path, config: Config) -> Path:
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"config": config.to_json(), "commit": None}))
    rows = [
        {"actor_steps": 100, "seconds": 30.0, "return_mean": 1.0},
        {"actor_steps": 100, "seconds": 60.0, "eval_return_mean": 2.0, "eval_return_std": 0.5},
        {"actor_steps": 200, "seconds": 90.0, "return_mean": None},
        {"actor_steps": 200, "seconds": 120.0, "eval_return_mean": 4.0, "eval_return_std": 0.5},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


class TestReading:
    def test_a_run(self, tmp_path: Path) -> None:
        (found,) = curves.read([write_run(tmp_path / "run", Config(env="toy/chain", seed=3))])
        assert (found.task, found.agent, found.preset, found.seed) == ("toy/chain", "aql", "fast", 3)
        assert found.config_hash == sweep.config_hash(Config())
        assert found.steps.tolist() == [100, 200]
        assert found.minutes.tolist() == [1, 2]
        assert found.returns.tolist() == [2, 4]
        assert found.training_returns is not None
        assert found.training_returns.tolist() == [1]

    def test_results_of_a_sweep_and_its_folder(self, tmp_path: Path) -> None:
        (tmp_path / "results.csv").write_text(
            ",".join(results.COLUMNS) + "\n"
            "s,toy/chain,aql,fast,0,10,60,1.5,0.1,,abc,h\n"
            "s,toy/chain,aql,fast,0,20,120,,,,abc,h\n"
            "s,toy/chain,aql,fast,1,10,30,2.5,0.1,1,abc,h\n"
        )
        for path in (tmp_path / "results.csv", tmp_path):
            first, second = curves.read([path])
            assert (first.seed, first.steps.tolist(), first.returns.tolist()) == (0, [10], [1.5])
            assert (second.seed, second.minutes.tolist(), second.returns.tolist()) == (1, [0.5], [2.5])

    def test_mistakes_are_one_line_and_code_2(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        run = write_run(tmp_path / "run", Config())
        for arguments, message in (
            ([str(tmp_path / "none")], "there is no"),
            ([str(tmp_path / "other.csv")], "is not the results.csv of a sweep"),
            ([str(tmp_path)], "is not a run"),
            ([str(run), "-o", str(tmp_path / "x.docx")], "name it .png"),
        ):
            assert cli.main(["plot", *arguments]) == 2
            error = capsys.readouterr().err
            assert message in error
            assert error.count("\n") == 1


class TestBand:
    def test_bootstrap_is_literal(self) -> None:
        values = np.array([[0.0, 10.0], [3.0, 10.0], [6.0, 10.0]])
        low, high = curves.bootstrap(values, np.random.default_rng(0))
        # Of the 27 resamples of three one is 0 and one is 6, 3.7 % each: beyond the 2.5 % that are cut off.
        assert low.tolist() == [0, 10]
        assert high.tolist() == [6, 10]
        low, high = curves.bootstrap(values, np.random.default_rng(0), level=0.5)
        assert low.tolist() == [2, 10]
        assert high.tolist() == [4, 10]

    def test_of_a_hundred_it_is_the_normal_interval(self) -> None:
        rng = np.random.default_rng(1)
        values = rng.normal(size=(100, 1))
        low, high = curves.bootstrap(values, rng)
        half = 1.96 * values.std() / 10
        np.testing.assert_allclose([low[0], high[0]], [values.mean() - half, values.mean() + half], atol=0.03)

    def test_same_steps_are_kept(self) -> None:
        line = curves.band([curve(y=(0, 2)), curve(y=(2, 6))], "steps")
        assert line.x.tolist() == [10, 20]
        assert line.mean.tolist() == [1, 4]

    def test_other_steps_are_interpolated_where_all_have_values(self) -> None:
        line = curves.band([curve(x=(0, 20), y=(0, 20)), curve(x=(10, 40), y=(0, 0))], "steps")
        assert (line.x[0], line.x[-1]) == (10, 20)
        np.testing.assert_allclose(line.mean, line.x / 2)
        with pytest.raises(UserError, match="no steps in common"):
            curves.band([curve(x=(0, 1)), curve(x=(5, 6))], "steps")

    def test_a_run_that_goes_on_is_kept_from_where_the_others_end(self) -> None:
        line = curves.band([curve(x=(0, 20), y=(0, 20)), curve(x=(0, 40), y=(0, 80))], "steps")
        assert line.x[-1] == 20
        ((x, returns),) = line.beyond
        assert (x.tolist(), returns.tolist()) == ([20, 40], [40, 80])
        assert curves.band([curve(x=(0, 20)), curve(x=(0, 21))], "steps").beyond == ()


def test_labels_say_no_more_than_is_needed() -> None:
    fast, paper, other = curve(), curve(preset="paper"), curve(config="0123456789ab")
    assert curves.labels([fast, curve(seed=1)]) == ["aql", "aql"]
    assert curves.labels([fast, curve(task="toy/other", config="999999999999")]) == ["aql", "aql"]
    assert curves.labels([fast, paper]) == ["aql fast", "aql paper"]
    assert curves.labels([fast, other]) == ["aql abcdef", "aql 012345"]
    assert curves.labels([fast, other, paper], pool=True) == ["aql fast", "aql fast", "aql paper"]


class TestPaper:
    def test_found_for_a_control_task(self) -> None:
        found = curves.reference("control/walker-walk")
        assert found is not None
        assert found.final == pytest.approx(966, abs=3)
        assert found.steps[:2].tolist() == [0, 5_999_984]
        assert found.returns[:2].tolist() == [271.1, 834.8]

    def test_none_where_there_is_none(self, tmp_path: Path) -> None:
        assert curves.reference("toy/chain") is None
        assert curves.reference("walker-walk") is None
        assert curves.reference("control/dog-run") is None
        assert curves.reference("control/walker-walk", tmp_path / "absent") is None


class TestFigure:
    @pytest.mark.parametrize("panels", [1, 2, 4, 7])
    def test_a_panel_per_task_and_a_line_per_agent(self, panels: int) -> None:
        tasks = [f"toy/{number}" for number in range(panels)]
        many = [curve(task, agent, seed) for task in tasks for agent in ("aql", "uniform") for seed in (0, 1)]
        figure = drawing.draw(many)
        assert [axes.get_title("left") for axes in figure.axes] == [str(number) for number in range(panels)]
        for axes in figure.axes:
            assert [line.get_label() for line in axes.lines] == ["aql", "uniform"]
            assert len(axes.collections) == 2  # the bands

    @pytest.mark.parametrize(
        ("panels", "columns"),
        [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (6, 3), (7, 3), (8, 4), (9, 3), (10, 5), (32, 4)],
    )
    def test_the_last_row_is_full_where_it_can_be(self, panels: int, columns: int) -> None:
        figure = drawing.draw([curve(f"toy/{number}", "aql") for number in range(panels)])
        place = figure.axes[0].get_subplotspec()
        assert place is not None
        assert place.get_gridspec().ncols == columns

    def test_colours_follow_the_agent(self) -> None:
        figure = drawing.draw([curve("toy/a", "aql"), curve("toy/a", "uniform"), curve("toy/b", "uniform")])
        first, second = figure.axes
        assert first.lines[1].get_color() == second.lines[0].get_color() != first.lines[0].get_color()
        assert [text.get_text() for text in second.texts] == ["aql", "uniform"]

    def test_a_row_is_labelled_with_its_own_lines(self) -> None:
        agents = {"toy/a": "aql", "toy/b": "uniform", "toy/c": "exact", "toy/d": "qtopt", "toy/e": "impala"}
        figure = drawing.draw([curve(task, agent) for task, agent in agents.items()])
        labels = [sorted(text.get_text() for text in axes.texts) for axes in figure.axes]
        assert labels == [[], [], ["aql", "exact", "uniform"], [], ["impala", "qtopt"]]

    def test_the_paper_beside_the_run(self) -> None:
        own = [curve("control/walker-walk", seed=seed, x=(0, 6e5), y=(0, 900)) for seed in (0, 1)]
        (axes,) = drawing.draw(own).axes
        assert [line.get_label() for line in axes.lines][:2] == ["aql", "paper"]
        np.testing.assert_allclose(np.asarray(axes.lines[1].get_ydata()), [271.1, 327.47], atol=0.01)
        assert [text.get_text() for text in axes.texts] == ["aql", "paper, 200M"]
        (axes,) = drawing.draw(own, "minutes").axes
        assert "paper" not in [line.get_label() for line in axes.lines]
        (axes,) = drawing.draw(own, paper=False).axes
        assert len(axes.lines) == 1

    def test_a_run_that_goes_on_is_drawn_to_its_end(self) -> None:
        (axes,) = drawing.draw([curve(seed=0, x=(0, 20), y=(0, 20)), curve(seed=1, x=(0, 40), y=(0, 80))]).axes
        assert [line.get_label() for line in axes.lines] == ["aql", "aql, one run"]
        assert np.asarray(axes.lines[1].get_xdata()).tolist() == [20, 40]
        assert axes.get_xlim() == (0, 40)
        assert axes.get_ylim()[1] > 80

    def test_a_final_return_far_above_does_not_flatten_the_curve(self) -> None:
        (axes,) = drawing.draw([curve("control/humanoid-stand", y=(0, 8))]).axes
        assert axes.get_ylim()[1] < 10
        assert "315" in [text.get_text() for text in axes.texts]

    def test_command_draws_a_run_with_its_training(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "run", Config(env="toy/chain"))
        (axes,) = drawing.draw(curves.read([run])).axes
        assert [line.get_label() for line in axes.lines] == ["aql", "training"]
        for ending in ("png", "svg"):
            picture = tmp_path / f"new/curves.{ending}"
            assert cli.main(["plot", str(run), "-o", str(picture), "--x", "minutes"]) == 0
            assert picture.stat().st_size > 5_000
        assert (tmp_path / "new/curves.png").read_bytes().startswith(b"\x89PNG")
