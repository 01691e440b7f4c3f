"""Films: what agents tell of their decisions, how it is drawn, and a real one of a short run."""

import functools
import re
import subprocess
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import agents, envs
from aql.actions import ActionSpace, Discrete, Interval
from aql.agents.base import Decision, EnvSpec, Thought
from aql.cli import main
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.networks.proposals import Conditionals
from aql.report import panel, scene

SMALL: dict[str, Any] = {"critic_layers": (8,), "proposal_layers": (7,), "num_proposal": 5, "num_uniform": 6}
MIXED = ActionSpace((Discrete(4), Interval(-2, 6)))


def _now(observation: np.ndarray) -> TimeStep:
    zeros, no = np.zeros(len(observation), np.float32), np.zeros(len(observation), bool)
    return TimeStep(observation, zeros, zeros + 1, no, no, no_masks(len(observation)))


@functools.cache
def _thought(name: str) -> tuple[Any, Decision, Thought]:
    """An agent's decision in three states, and what it says of it."""
    agent: Any = agents.make(Config(agent=name, enumerate_small=False, **SMALL), EnvSpec((3,), MIXED))
    params = agent.acting_params(agent.init(jax.random.key(0)))
    now = _now(np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32))
    given = (params, agent.init_actors(np.arange(3), 3), jax.random.key(1), now)
    decision, _ = agent.act(*given, "greedy")
    return agent, decision, agent.explain(*given, decision.action)


@pytest.mark.parametrize(("name", "candidates"), [("aql", 11), ("aql-gaussian", 11), ("exact", 20)])
def test_the_values_told_are_those_of_the_search_that_decided(name: str, candidates: int) -> None:
    _, decision, thought = _thought(name)
    values, proposed = np.asarray(thought.values), np.asarray(thought.proposed)
    assert values.shape == (3, candidates)
    assert proposed.tolist() == [name != "exact" and c < 5 for c in range(candidates)]
    assert proposed[values.argmax(axis=1)].tolist() == np.asarray(decision.extras["from_proposal"]).tolist()
    assert (thought.proposal is None) == (name == "exact")


def test_the_probabilities_told_are_those_of_the_decision() -> None:
    agent, decision, thought = _thought("impala")
    assert thought.proposal is not None
    probability = np.asarray(thought.proposal.probability)
    np.testing.assert_allclose(probability.sum(axis=-1), np.ones((3, 2)), rtol=1e-5)
    assert not probability[:, 0, 4:].any()  # four choices only
    chosen = np.take_along_axis(probability, np.asarray(agent.space.to_index(decision.action))[..., None], axis=-1)
    np.testing.assert_allclose(np.log(chosen).sum(axis=(1, 2)), decision.extras["log_prob"], rtol=1e-4)


def test_an_agent_without_either_tells_nothing() -> None:
    agent: Any = agents.make(Config(agent="d3pg", **SMALL), EnvSpec((3,), ActionSpace((Interval(0, 1),))))
    assert agent.explain(None, None, None, None, None) == Thought()


def _count(pixels: np.ndarray, colour: tuple[int, int, int], cell: panel.Cell) -> int:
    x, y, width, height = (round(side) for side in cell)
    return int((pixels[y : y + height, x : x + width] == colour).all(axis=-1).sum())


def test_bars_are_as_high_as_their_choices_are_likely() -> None:
    probability = jnp.array([[[0.5, 0.0, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]]])
    mean = jnp.array([[0.0, 0.5]])
    narrow, wide = (Thought(Conditionals(probability, mean, jnp.array(std))) for std in (0.25, 0.5))
    drawer = panel.Panel(MIXED, ["choice", "value"], 480, narrow)
    drawn = drawer.draw(narrow, np.array([2.0, 0.5]), 7, 1.5)
    assert drawn.shape == (480, panel.WIDTH, 3)
    area = panel.Cell(panel.MARGIN, panel.HEADER, panel.WIDTH - 2 * panel.MARGIN, 480 - panel.HEADER)
    choice, value = panel.grid(2, area)
    blue, orange, empty = (_count(drawn, colour, choice) for colour in (panel.BLUE, panel.ORANGE, panel.SLOT))
    assert blue / (blue + orange + empty) == pytest.approx(0.75 / 4, rel=0.05)
    assert orange / blue == pytest.approx(1 / 3, rel=0.3)  # with a mark below the bar, and the chosen value
    # A bell of twice the deviation has twice the area, but for what lies beyond the bounds.
    wider = _count(drawer.draw(wide, np.array([2.0, 0.5]), 7, 1.5), panel.BLUE, value)
    assert wider / _count(drawn, panel.BLUE, value) == pytest.approx(1.7, abs=0.15)


def test_candidates_are_as_far_from_the_best_as_their_values() -> None:
    values = jnp.array([[0.0, 1.0, 2.0, -jnp.inf, 10.0, 4.0]])
    thought = Thought(None, values, jnp.array([True] * 3 + [False] * 3))
    drawer = panel.Panel(MIXED, ["a", "b"], 480, thought)

    def pixels(values: jax.Array, colour: Any) -> np.ndarray:
        bottom = drawer.draw(thought._replace(values=values), np.zeros(2), 0, 0.0)[panel.HEADER + 24 + 180]
        return np.flatnonzero((bottom == colour).all(axis=-1))

    width = panel.WIDTH - 2 * panel.MARGIN
    assert pixels(values, panel.ORANGE)[-1] == panel.WIDTH - panel.MARGIN - 1
    assert pixels(values, panel.BLUE)[0] == panel.MARGIN  # the worst
    np.testing.assert_array_equal(pixels(values + 1000, panel.BLUE), pixels(values, panel.BLUE))
    for _ in range(3):
        calm = pixels(values / 2, panel.BLUE)[0]  # half as far behind, in a range that shrinks slowly
    assert (calm - panel.MARGIN) / width == pytest.approx(1 - 5 / (10 * 0.98**3), abs=0.02)


@pytest.mark.parametrize("count", [1, 7, 21, 56])
def test_cells_fill_the_panel_without_touching(count: int) -> None:
    area = panel.Cell(14, 62, 452, 302)
    covered = np.zeros((480, 480), int)
    for cell in panel.grid(count, area):
        x, y, right, bottom = (round(side) for side in (cell.x, cell.y, cell.x + cell.width, cell.y + cell.height))
        covered[y:bottom, x:right] += 1
    inside = covered[62:364, 14:466]
    assert covered.max() == 1
    assert covered.sum() == inside.sum()
    assert inside.mean() > 0.6


def test_pictures_are_enlarged_by_whole_factors_and_put_side_by_side() -> None:
    for size, expected in ((8, 480), (42, 462), (84, 504), (480, 480), (1080, 1080)):
        small = np.arange(size * size * 3).reshape(size, size, 3).astype(np.uint8)
        large = scene.enlarge(small)
        assert large.shape == (expected, expected, 3)
        assert np.array_equal(large[:: expected // size, :: expected // size], small)
    joined = scene.beside([np.full((5, 3, 3), 1, np.uint8), np.full((3, 4, 3), 2, np.uint8)])
    assert joined.shape == (6, 8, 3)
    assert (joined[:5, :3] == 1).all()
    assert (joined[1:4, 3:7] == 2).all()


def _decode(path: Path, width: int, height: int) -> tuple[float, np.ndarray]:
    """The film's frames per second, and its frames [F, H, W, 3]."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True, close_fds=False)
    found = re.search(rb"([\d.]+) fps", done.stderr)
    assert found is not None
    return float(found[1]), np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def test_a_film_of_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = tmp_path / "run", tmp_path / "film.mp4"
    settings = {"critic_layers": 8, "proposal_layers": 8, "random_steps": 40, "steps": 80, "eval_episodes": 1}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    assert main(["train", "hybrid/platform", "--quiet", "--out", str(run), *words]) == 0
    assert main(["watch", str(run), "-o", str(path)]) == 0
    assert "an episode with return" in capsys.readouterr().out
    env = envs.make_rendered("hybrid/platform")
    env.reset(0)
    picture = scene.enlarge(env.render())
    height, width = max(480, picture.shape[0]), picture.shape[1] + panel.WIDTH
    fps, frames = _decode(path, width + width % 2, height + height % 2)
    assert fps == 4  # as the environment says of itself
    assert len(frames) >= 1
    left, right = frames[0][:, : picture.shape[1]], frames[0][:, picture.shape[1] :]
    assert left.std() > 10
    assert np.abs(right.astype(int) - panel.BLUE).sum(axis=-1).min() < 30  # the proposal's bars
