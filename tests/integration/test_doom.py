"""Doom levels on the real engine: what is seen, picked up, counted, and what happens when the engine is killed."""

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import vizdoom

import aql
from aql import envs
from aql.actions import Discrete, Interval
from aql.cli import main
from aql.envs import doom
from aql.envs.doom import actions, engine, maps, process, scenarios, watchdog
from aql.envs.doom.levels import LEVELS, ExploreEnv
from aql.envs.doom.maps import CELL, Maze, Place, Theme, Thing
from aql.envs.doom.process import GameProcess
from aql.envs.gym import GymEnv
from aql.envs.threaded import ThreadedVector
from aql.envs.wrappers import Finite, Repeated
from aql.errors import UserError
from aql.presets import preset
from aql.runtime.local import Trainer

NOTHING = np.array([3, 3, 1, 1, 0, 0, 0])
FORWARD = np.array([3, 3, 1, 2, 0, 0, 0])
THEME = Theme("BRICK7", "FLAT1", "CEIL1_1")


def _cell(x: float, y: float) -> tuple[int, int]:
    return int(x // CELL), int(y // CELL)


def _next_cell(maze: Maze, start: tuple[int, int], goal: tuple[int, int]) -> tuple[int, int]:
    """The second cell of a shortest path, found backwards from the goal."""
    rows = maze.rows[::-1]
    queue = deque([goal])
    seen = {goal}
    while queue:
        x, y = queue.popleft()
        for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if near == start:
                return x, y
            if rows[near[1]][near[0]] != "*" and near not in seen:
                seen.add(near)
                queue.append(near)
    raise AssertionError(f"no way from {start} to {goal}")


def _towards(env: ExploreEnv, goal: Place) -> np.ndarray:
    """The action of someone who knows the maze."""
    x, y, angle = env.engine.pose
    cell, last = _cell(x, y), _cell(*goal)
    cx, cy = last if cell == last else _next_cell(env.maze, cell, last)
    bearing = math.degrees(math.atan2(CELL * (cy + 0.5) - y, CELL * (cx + 0.5) - x))
    right = (angle - bearing + 180) % 360 - 180  # degrees to turn to the right
    action = NOTHING.copy()
    action[0] = int(np.argmin(np.abs(np.array(actions.TURN) - right / engine.TICS)))
    if abs(right) < 30:
        action[3] = 2
    return action


def _fetch(env: ExploreEnv, goal: Place) -> tuple[list[float], bool]:
    """Walks until something is picked up: the rewards and whether the episode ended."""
    rewards: list[float] = []
    while not any(rewards):
        _, reward, terminated, truncated, _ = env.step(_towards(env, goal))
        assert not terminated
        rewards.append(reward)
        if truncated:
            return rewards, True
        assert len(rewards) < 600, "lost"
    return rewards, False


def _kill(game: GameProcess) -> None:
    os.kill(game.pid, signal.SIGKILL)


def _signal_while_it_starts(game: GameProcess, what: signal.Signals, after: float) -> threading.Thread:
    """Signals the engine once it has worked so many seconds: it needs about 0.2, however busy the machine is."""

    def act() -> None:
        while True:
            # The process id comes into being in two moments: no file, an empty one.
            with contextlib.suppress(FileNotFoundError, ValueError):
                nanoseconds = Path(f"/proc/{game.pid}/schedstat").read_text().split()[0]
                if int(nanoseconds) >= 1e9 * after:
                    break
            time.sleep(0.002)
        os.kill(game.pid, what)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def _python(script: str, folder: Path) -> subprocess.Popen[str]:
    """Another Python that runs the script, with its temporary files in the folder."""
    pipe, environment = subprocess.PIPE, os.environ | {"TMPDIR": str(folder)}
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, close_fds=False)


@pytest.fixture
def small() -> Iterator[ExploreEnv]:
    env = ExploreEnv("explore_goal_locations_small")
    yield env
    env.close()


@pytest.fixture
def bare() -> Iterator[engine.Engine]:
    game = engine.Engine(84)
    yield game
    game.close()


def test_goal_is_picked_up_for_10_and_the_agent_respawns_in_the_same_maze(small: ExploreEnv) -> None:
    small.reset(seed=1)
    maze, (goal,) = small.maze, small.places
    assert goal in maze.objects
    for _ in range(3):
        rewards, _ = _fetch(small, goal)
        assert rewards[-1] == 10
        assert not any(rewards[:-1])
        x, y, _ = small.engine.pose
        assert Place(round(x), round(y)) in maze.spawns
        assert small.maze is maze
        assert small.places == [goal]


def test_all_objects_are_worth_1_each_and_come_back_together() -> None:
    env = ExploreEnv("explore_object_locations_small")
    env.reset(seed=4)
    count = len(env.places)
    assert count == len(env.maze.objects) // 2 > 1
    total, left = 0.0, list(env.places)
    while left:
        x, y, _ = env.engine.pose
        nearest = min(left, key=lambda place: math.dist(place, (x, y)))
        _, reward, _, _, _ = env.step(_towards(env, nearest))
        total += reward
        if reward:
            assert reward == 1
            # What was touched on the way to another one is gone too: the nearest place is the one.
            x, y, _ = env.engine.pose
            left.remove(min(left, key=lambda place: math.dist(place, (x, y))) if len(left) > 1 else left[0])
    assert total == count
    x, y, _ = env.engine.pose
    assert Place(round(x), round(y)) in env.maze.spawns
    assert _fetch(env, min(env.places, key=lambda place: math.dist(place, (x, y))))[0][-1] == 1
    env.close()


def test_a_wall_stops_both_the_hand_and_the_eye(bare: engine.Engine) -> None:
    def play(rows: tuple[str, ...], with_goal: bool) -> np.ndarray:
        maze = Maze(rows)
        things = [Thing(engine.PLAYER_START, maze.spawns[0], angle=0)]  # east
        things += [Thing(engine.GOAL, maze.objects[0])] if with_goal else []
        return bare.play(maps.textmap(maze, THEME, things), seed=0)

    walled = ("*****", "*P*G*", "* * *", "*   *", "*****")
    assert np.array_equal(play(walled, with_goal=True), play(walled, with_goal=False))
    play(walled, with_goal=True)
    for _ in range(40):
        _, found = bare.act(actions.buttons(FORWARD))
    assert found == 0
    assert bare.pose[0] == pytest.approx(2 * CELL - 16, abs=1)  # at the wall, one radius off

    empty, seen = play(("*****", "*P G*", "*****"), with_goal=False), play(("*****", "*P G*", "*****"), with_goal=True)
    changed = (empty != seen).any(axis=-1)
    assert changed.sum() > 50
    assert changed[:, 30:54].sum() == changed.sum()  # straight ahead
    counts = [bare.act(actions.buttons(FORWARD))[1] for _ in range(40)]
    assert counts == sorted(counts)
    assert (counts[5], counts[-1]) == (0, 1)  # not before the agent is there


@pytest.mark.parametrize("resolution", [84, 42])
def test_the_picture_spans_90_degrees(resolution: int) -> None:
    maze = Maze(("******", "*   G*", "*    *", "*    *", "*P   *", "******"))
    game = engine.Engine(resolution)

    def columns(angle: int) -> np.ndarray:
        """Where the goal is seen, from -1 (left) to 1, by someone who looks so far to the right of it."""
        start = Thing(engine.PLAYER_START, maze.spawns[0], 45 - angle)
        pictures = [
            game.play(maps.textmap(maze, THEME, things), seed=0)
            for things in ([start], [start, Thing(engine.GOAL, maze.objects[0])])
        ]
        changed = (pictures[0] != pictures[1]).any(axis=(0, 2))
        return 2 * (np.flatnonzero(changed) + 0.5) / resolution - 1

    for angle in (0, 20, 40, -40):
        assert columns(angle).mean() == pytest.approx(-math.tan(math.radians(angle)), abs=0.05)
    assert len(columns(50)) == 0
    game.close()


def test_same_seed_same_episode(small: ExploreEnv) -> None:
    def play(env: ExploreEnv, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        frames = [env.reset(seed=seed)[0]]
        frames += [env.step(rng.integers(0, actions.SIZES))[0] for _ in range(60)]
        return [*frames, env.reset()[0]]

    other = ExploreEnv("explore_goal_locations_small")
    other.reset(seed=9)  # what came before does not matter
    first, again, different = play(small, 5), play(other, 5), play(other, 6)
    other.close()
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], different[0])
    assert first[0].shape == (84, 84, 3)
    assert first[0].dtype == np.uint8
    assert not np.array_equal(first[0], first[-1])  # every episode has its own maze


def test_an_episode_has_1350_steps_and_ends_by_its_limit(
    small: ExploreEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small.reset(seed=0)
    assert list(tmp_path.iterdir()) == []  # the engine leaves nothing where the user is
    for step in range(1, 1351):
        _, reward, terminated, truncated, _ = small.step(NOTHING)
        assert (reward, terminated, truncated) == (0, False, step == 1350)


def test_each_sub_action_does_what_it_says(small: ExploreEnv) -> None:
    small.reset(seed=2)
    _, _, angle = small.engine.pose
    small.step(np.array([5, 3, 1, 1, 0, 0, 0]))
    assert small.engine.pose[2] == pytest.approx((angle - 8) % 360, abs=0.1)  # 2 degrees in each of 4 tics
    assert len(actions.TURN) * len(actions.LOOK) * 3 * 3 * 2 * 2 * 2 == 3528
    base = small.reset(seed=2)[0]
    for index, value in ((1, 6), (2, 0), (2, 2), (3, 0), (3, 2), (5, 1), (6, 1)):
        small.reset(seed=2)
        action = NOTHING.copy()
        action[index] = value
        frames = [small.step(action)[0] for _ in range(3)]
        assert not np.array_equal(frames[-1], base), f"sub-action {index} = {value} changes nothing"


def test_curated_actions_are_full_ones(small: ExploreEnv) -> None:
    curated = ExploreEnv("explore_goal_locations_small", action_set="curated")
    assert curated.action_space == gymnasium.spaces.Discrete(11)
    assert len({tuple(actions.buttons(i)) for i in range(11)}) == 11
    small.reset(seed=3)
    curated.reset(seed=3)
    for i in (1, 1, 7, 9, 3, 2):
        assert np.array_equal(small.step(np.array(actions.CURATED[i]))[0], curated.step(np.int64(i))[0])
    curated.close()


def test_a_killed_engine_is_replaced_and_ends_one_episode_as_a_time_limit_does() -> None:
    levels = [ExploreEnv("explore_goal_locations_tiny", resolution=42) for _ in range(2)]
    harmed = ThreadedVector([GymEnv(level) for level in levels])
    unharmed = doom.make("doom/explore_goal_locations_tiny?resolution=42", 2)
    vectors = [unharmed, harmed]
    action = np.stack([FORWARD, np.array(actions.CURATED[10])]).astype(np.float32)

    def step(vector: Any) -> Any:
        vector.send(action)
        return vector.receive()

    for vector in vectors:
        first = vector.reset(11)
        assert first.observation.shape == (2, 42, 42, 3)
        assert first.first.all()
        step(vector)
    _kill(levels[0].engine.process)
    hit, fine = step(harmed), step(unharmed)
    assert hit.last.tolist() == [True, False]
    assert hit.discount.tolist() == [1, 1]
    assert hit.reward.tolist() == [0, 0]
    assert harmed.restarts == 1
    assert unharmed.restarts == 0
    assert np.array_equal(hit.observation[1], fine.observation[1])  # the neighbour does not notice
    for i in range(5):
        after, fine = step(harmed), step(unharmed)
        assert after.first.tolist() == [i == 0, False]
        assert not after.last.any()
        assert np.array_equal(after.observation[1], fine.observation[1])
    assert after.observation[0].std() > 0
    pids = [level.engine.process.pid for level in levels]
    for vector in vectors:
        vector.close()
        vector.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_engine_that_hangs_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    env = ExploreEnv("explore_goal_locations_tiny", resolution=42)
    before = env.reset(seed=8)[0]

    def hang() -> int:
        pid = env.engine.process.pid
        os.kill(pid, signal.SIGSTOP)  # alive, and silent
        return pid

    pid = hang()
    monkeypatch.setattr(watchdog, "HANGS_AFTER", 1.0)
    _, reward, terminated, truncated, info = env.step(FORWARD)
    monkeypatch.setattr(watchdog, "HANGS_AFTER", 5.0)  # a start takes a second on a busy machine
    assert (reward, terminated, truncated, env.restarts) == (0, False, True, 1)
    assert "engine_died" in info
    assert not Path(f"/proc/{pid}").exists()
    assert np.array_equal(env.reset(seed=8)[0], before)
    assert not env.step(FORWARD)[3]
    hang()
    assert np.array_equal(env.reset(seed=8)[0], before)  # also when a map begins
    assert env.restarts == 2
    pid = hang()
    monkeypatch.setattr(watchdog, "HANGS_AFTER", 1.0)
    env.close()
    assert not Path(f"/proc/{pid}").exists()


def test_training_goes_on_when_an_engine_is_killed() -> None:
    small = {"critic_layers": (8,), "proposal_layers": (8,), "num_critics": 1, "batch_size": 8, "updates_per_call": 1}
    config = preset("fast", actors=2, random_steps=20, log_every=10, eval_every=10_000, **small)
    build = doom.builder("doom/explore_goal_locations_tiny?resolution=8&action_set=curated")
    levels = [build(), build()]
    env = ThreadedVector([GymEnv(level) for level in levels])
    trainer = Trainer.in_process(config, env, env)
    lines: list[dict[str, Any]] = []
    for step in range(40):
        if step == 20:
            _kill(levels[1].engine.process)
        trainer.step(lambda steps, **metrics: lines.append({"steps": steps, **metrics}))
    env.close()
    assert {line["env_restarts"] for line in lines if line["steps"] <= 40} == {0}
    assert lines[-1]["env_restarts"] == 1
    assert lines[-1]["updates"] > lines[len(lines) // 2]["updates"]


PAPER = {"image_torso": "resnet", "memory_size": 8, "see_last_action": True, "fresh_search": False}


@pytest.mark.parametrize(
    ("agent", "resolution", "more"),
    [("aql", 8, {}), ("exact", 8, {}), ("uniform", 8, {}), ("impala", 8, {}), ("aql", 16, PAPER)],
)
def test_agents_learn_from_pictures_with_3528_actions(agent: str, resolution: int, more: dict[str, Any]) -> None:
    tiny = {"critic_layers": (4,), "proposal_layers": (4,), "num_critics": 1, "embedding_size": 8, "batch_size": 2}
    short = {"actors": 1, "random_steps": 0, "unroll_length": 2, "replayed_per_new": 1, "updates_per_call": 1}
    env_id = f"doom/explore_goal_locations_tiny?resolution={resolution}"
    settings = tiny | short | {"log_every": 1, "eval_every": 10_000} | more
    env = envs.make(env_id, 1)
    trainer = Trainer.in_process(preset("fast", env=env_id, agent=agent, **settings), env, env)
    lines: list[dict[str, Any]] = []
    for _ in range(8):
        trainer.step(lambda steps, **metrics: lines.append(metrics))
    env.close()
    assert lines[-1]["updates"] >= 3
    assert all(np.isfinite(value) for value in lines[-1].values() if value is not None)


def test_restarts_are_counted_whatever_the_id_is() -> None:
    level = gymnasium.make("aql/ExploreGoalLocationsTiny-v0", resolution=8)
    explore: Any = level.unwrapped
    scenario: Any = scenarios.builder("VizdoomBasic-v1?observe=screen")()
    for env, game in ((level, explore.engine.process), (scenario, scenario.process)):
        vector = Finite(Repeated(envs.from_envs([env]), times=2))
        vector.reset(0)
        assert vector.restarts == 0
        _kill(game)
        vector.send(np.zeros((1, vector.action_space.dimensions), np.float32))
        assert vector.receive().discount.tolist() == [1]
        assert vector.restarts == 1
        vector.close()
    cart: Any = envs.make("CartPole-v1", 1)
    assert cart.restarts is None
    cart.close()


def test_an_engine_that_dies_between_episodes_is_replaced_too(small: ExploreEnv) -> None:
    expected = small.reset(seed=8)[0]
    _kill(small.engine.process)
    assert np.array_equal(small.reset(seed=8)[0], expected)
    assert small.restarts == 1
    assert not np.array_equal(small.reset(seed=9)[0], expected)  # and the new one takes new maps


@pytest.mark.parametrize("after", [0.0, 0.02, 0.08])
def test_an_engine_that_dies_while_it_starts_is_started_again(small: ExploreEnv, after: float) -> None:
    killer = _signal_while_it_starts(small.engine.process, signal.SIGKILL, after)
    first = small.reset(seed=8)[0]
    killer.join()
    assert small.restarts == 1
    assert not small.step(FORWARD)[3]
    assert np.array_equal(small.reset(seed=8)[0], first)
    assert small.restarts == 1


def test_an_engine_that_hangs_while_it_starts_is_started_again(
    small: ExploreEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "HANGS_AFTER", 5.0)  # a start takes a second on a busy machine
    hanging = _signal_while_it_starts(small.engine.process, signal.SIGSTOP, after=0.02)
    small.reset(seed=8)
    hanging.join()
    assert small.restarts == 1


def test_an_engine_that_dies_while_a_map_begins_is_replaced(small: ExploreEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, deaths = small.engine._begin, 1

    def begin_badly(seed: int) -> np.ndarray:
        nonlocal deaths
        if deaths:
            deaths -= 1
            _kill(small.engine.process)
        return begin(seed)

    monkeypatch.setattr(small.engine, "_begin", begin_badly)
    first = small.reset(seed=8)[0]
    assert small.restarts == 1
    assert np.array_equal(small.reset(seed=8)[0], first)
    deaths = process.STARTS
    with pytest.raises(UserError, match="died 3 times at the start of an episode"):
        small.reset(seed=8)
    assert small.restarts == 1 + process.STARTS
    assert np.array_equal(small.reset(seed=8)[0], first)


def test_an_engine_ends_with_its_owner_and_not_by_its_interrupt(
    small: ExploreEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.reset(seed=0)
    os.kill(small.engine.process.pid, signal.SIGINT)  # Ctrl-C reaches a terminal's children too
    assert not small.step(FORWARD)[3]
    assert small.restarts == 0

    script = (
        "from aql.envs.doom.levels import ExploreEnv\nenv = ExploreEnv('explore_goal_locations_tiny')\n"
        "env.reset(seed=0)\nprint(env.engine.process.pid, env.engine.game.get_instance_id(), flush=True)\ninput()"
    )
    with _python(script, tmp_path) as owner:
        assert owner.stdout is not None
        pid, instance_id = owner.stdout.readline().split()
        status = Path(f"/proc/{pid}/status").read_text()
        launcher = status.split("PPid:")[1].split()[0]
        owner.kill()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() or Path(f"/proc/{launcher}").exists():
        assert time.monotonic() < deadline, "the engine outlived the process that started it"
        time.sleep(0.05)
    assert not list(Path("/dev/shm").glob(f"ViZDoom*{instance_id}"))
    # Its folder is removed by the next one that has games there; one in use is not.
    (left,) = tmp_path.iterdir()
    in_use = tmp_path / left.name.replace(str(owner.pid), str(os.getppid()))
    in_use.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    game = GameProcess(lambda: None)
    assert set(tmp_path.iterdir()) == {in_use, game.folder}
    game.close()


def test_registered_with_gymnasium_and_rendered() -> None:
    env = gymnasium.make("aql/ExploreGoalLocationsTiny-v0", render_mode="rgb_array", action_set="curated")
    observation, _ = env.reset(seed=0)
    picture: Any = env.render()
    assert np.array_equal(picture, observation)
    steps = 0
    truncated = False
    while not truncated:
        _, _, _, truncated, _ = env.step(0)
        steps += 1
    assert steps == 450
    env.close()
    film = envs.make_rendered("doom/explore_goal_locations_tiny?resolution=42")
    film.reset(0)
    assert film.render().shape == (42, 42, 3)
    assert film.steps_per_second == 15  # 60 frames a second, 4 a step
    assert film.action_names == ["turn", "look", "strafe", "move", "fire", "jump", "crouch"]
    film.close()


def test_an_instance_is_made_again_for_every_actor() -> None:
    env = gymnasium.make("aql/ExploreGoalLocationsTiny-v0", resolution=8, action_set="curated")
    small: dict[str, Any] = {"critic_layers": (8,), "proposal_layers": (8,), "num_critics": 1, "embedding_size": 8}
    model = aql.AQL(env, actors=2, eval_episodes=1, **small)
    folders = {level._env.unwrapped.engine.process.folder for level in model._env._envs}  # type: ignore[attr-defined]
    assert len(folders) == 2
    model.close()
    env.close()


def test_ids_options_and_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["envs"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {f"doom/{name}" for name in LEVELS} <= set(listed)
    for env_id, words in (
        ("doom/explore_goal_location_small", "did you mean doom/explore_goal_locations_small"),
        ("doom/explore_goal_locations_tiny?action_set=eleven", "expected full or curated"),
        ("doom/explore_goal_locations_tiny?resolution=500", "expected 8 to 120 pixels"),
        ("doom/explore_goal_locations_tiny?resolution=-5", "resolution is -5: expected 8 to 120 pixels"),
        ("doom/explore_goal_locations_tiny?resolution=20000", "resolution is 20000: expected 8 to 120 pixels"),
        ("doom/explore_goal_locations_tiny?resolution=large", "resolution is 'large': expected 8 to 120 pixels"),
        ("doom/explore_goal_locations_tiny?resolution=True", "resolution is True: expected 8 to 120 pixels"),
        ("doom/explore_goal_locations_tiny?action_set=3", "action_set is 3: expected full or curated"),
        ("doom/explore_goal_locations_tiny?action_set=None", "expected full or curated"),
        ("VizdoomBasic-v1?observe=screen&frame_skip=0", "frame_skip is 0: expected a whole number of tics, 1 or more"),
        ("VizdoomBasic-v1?observe=screen&frame_skip=some", "frame_skip is 'some': expected a whole number of tics"),
        ("doom/explore_goal_locations_tiny?colour=red", "unknown option 'colour'"),
        ("doom/explore_goal_locations_tiny?resolution", "name=value"),
        ("control/cartpole-swingup?resolution=42", "no option 'resolution'"),
    ):
        with pytest.raises(UserError, match=words):
            envs.make(env_id, 1)
    with pytest.raises(UserError, match="action_set is None: expected full or curated"):
        ExploreEnv("explore_goal_locations_tiny", action_set=None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="render_mode is 'nonsense': expected rgb_array or None"):
        ExploreEnv("explore_goal_locations_tiny", render_mode="nonsense")
    assert main(["train", "control/cartpole-swingup", "--action_set", "curated"]) == 2
    assert "control/cartpole-swingup has no option 'action_set'" in capsys.readouterr().err
    assert main(["train", "doom/explore_goal_locations_tiny?resolution=42", "--action_set", "eleven"]) == 2
    assert "unknown action_set 'eleven'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    with pytest.raises(UserError, match=r"need vizdoom: pip install 'aql\[doom\]'"):
        envs.make("doom/explore_goal_locations_tiny", 1)


def test_a_missing_library_is_named_and_told_how_to_get(tmp_path: Path) -> None:
    assert process.missing_libraries(process.program()) == []
    moved = shutil.copy(process.program(), tmp_path)  # away from the libraries beside it
    script = (
        "import pathlib\nfrom aql.envs.doom import process, levels\nfrom aql.errors import UserError\n"
        f"process.program = lambda: pathlib.Path({str(moved)!r})\n"
        "try:\n    levels.ExploreEnv('explore_goal_locations_tiny').reset(seed=0)\n"
        "except UserError as error:\n    print(error)\n"
    )
    with _python(script, tmp_path) as other:
        said, errors = other.communicate()
    assert re.fullmatch(
        r"Doom's engine does not start without libSDL2-.*: pip install --force-reinstall vizdoom\n", said
    ), errors
    assert process.packages_for(["libSDL2-2-d214786e.0.so.0.10.0", "libz.so.1"]) == "on Debian, apt install zlib1g"
    assert process.packages_for(["libstdc++.so.6"]) == "on Debian, apt install libstdc++6"


def test_a_folder_where_nothing_can_be_run(small: ExploreEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # the launcher is then as on a mount with `noexec`
    with pytest.raises(UserError, match=r"programs cannot be run in .*: set TMPDIR"):
        small.reset(seed=0)


def test_a_killed_game_of_a_scenario_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    build = scenarios.builder("VizdoomBasic-v1?observe=screen&screen_resolution=RES_160X120&frame_skip=4")
    env = build(render_mode="rgb_array")
    assert isinstance(env, scenarios.Scenario)
    first = env.reset(seed=3)[0]
    picture = env.render()
    assert np.array_equal(env.reset(seed=3)[0], first)  # the game that has just started is as any other
    _kill(env.process)
    observation, reward, terminated, truncated, info = env.step(0)
    assert np.array_equal(observation, first)
    assert (reward, terminated, truncated, env.restarts) == (0, False, True, 1)
    assert "engine_died" in info
    assert np.array_equal(env.render(), picture)
    assert np.array_equal(env.reset(seed=3)[0], first)
    assert not env.step(0)[3]
    _kill(env.process)
    assert np.array_equal(env.reset(seed=3)[0], first)  # also between episodes
    assert env.restarts == 2
    os.kill(env.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(watchdog, "HANGS_AFTER", 1.0)
    assert env.step(0)[3]
    monkeypatch.setattr(watchdog, "HANGS_AFTER", 5.0)
    env.reset(seed=4)
    assert not np.array_equal(env.step(0)[0], first)
    os.kill(env.process.pid, signal.SIGSTOP)
    assert np.array_equal(env.reset(seed=3)[0], first)
    assert env.restarts == 4
    env.close()
    env.close()


def test_scenarios_of_vizdoom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="bound="):
        envs.make("VizdoomDeathmatch-MultiBinary-v1?observe=screen", 1)
    basic = envs.make("VizdoomBasic-v1", 1)  # its picture, and its variables beside it
    assert basic.observations.describe() == "an image (240, 320, 3) and a number"
    basic.close()
    options = "observe=screen&screen_resolution=RES_160X120&frame_skip=4"
    hybrid = envs.make(f"VizdoomDeathmatch-MultiBinary-v1?bound=10&{options}", 2)
    assert hybrid.action_space.subactions == (*[Discrete(2)] * 17, *[Interval(-10, 10)] * 3)
    first = hybrid.reset(0)
    assert first.observation.shape == (2, 120, 160, 3)
    assert first.observation.dtype == np.uint8
    hybrid.send(np.ones((2, 20), np.float32))
    assert not np.array_equal(hybrid.receive().observation, first.observation)
    hybrid.close()

    # What each of the three does by itself.
    build = scenarios.builder(f"VizdoomDeathmatch-MultiBinary-v1?bound=10&{options}")
    scenario: Any = build()
    single = GymEnv(scenario)

    def told() -> dict[str, tuple[float, ...]]:
        report = scenario.process.game.get_game_variable
        names = {"pitch": ("PITCH",), "angle": ("ANGLE",), "position": ("POSITION_X", "POSITION_Y")}
        return {what: tuple(report(getattr(vizdoom.GameVariable, name)) for name in names[what]) for what in names}

    for index, what in ((17, "pitch"), (18, "angle"), (19, "position")):
        single.reset(0)
        before = told()
        action = np.zeros(20, np.float32)
        action[index] = 10
        for _ in range(4):  # nobody turns or walks in the first tics of an episode
            single.step(action)
        after = told()
        assert {name for name in after if after[name] != before[name]} == {what}
    single.close()

    film = envs.make_rendered(f"VizdoomBasic-v1?{options}")
    assert film.steps_per_second == 35 / 4  # tics a second, tics a step
    film.close()
    basic = envs.make(f"vizdoom.gymnasium_wrapper:VizdoomBasic-v1?{options}", 1)
    basic.reset(0)
    for _ in range(75):  # 300 tics
        basic.send(np.zeros((1, 1), np.float32))
        step = basic.receive()
    assert step.last.tolist() == [True]
    assert step.discount.tolist() == [1]  # the limit of time is no termination
    basic.close()
    assert list(tmp_path.iterdir()) == []  # ViZDoom's engine would leave files where it runs
