"""Environments by id, and Gymnasium environments behind the vector interface."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from aql import envs
from aql.actions import Discrete, Interval
from aql.envs import adapters, control, gym, ids
from aql.errors import UserError


class Script(gymnasium.Env):
    """Counts its steps, terminates after 3 or is truncated after 2, and remembers what it was given."""

    def __init__(
        self,
        action_space: Any = None,
        observation_space: Any = None,
        end: Any = "terminated",
        render_mode: Any = None,
    ) -> None:
        self.action_space = action_space or spaces.Discrete(2)
        self.observation_space = observation_space or spaces.Box(-1e3, 1e3, (2,), np.float64)
        self.end, self.render_mode = end, render_mode
        self.actions: list[Any] = []
        self.seeds: list[int | None] = []

    def _see(self) -> Any:
        if isinstance(self.observation_space, spaces.Box) and self.observation_space.shape == (2,):
            return np.array([self.steps, self.noise])
        return self.observation_space.sample()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps, self.noise = 0, self.np_random.random()
        return self._see(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.steps += 1
        terminated = self.end == "terminated" and self.steps == 3
        truncated = self.end == "truncated" and self.steps == 2
        return self._see(), 10.0 + self.steps, terminated, truncated, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), self.steps, np.uint8) if self.render_mode == "rgb_array" else None


def script(render_mode: Any = None) -> Any:
    return Script(render_mode=render_mode)


def plain() -> Any:
    return Script()


def script_that_ends(end: str) -> Any:
    return Script(end=end)


def looking() -> Any:
    eye = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    return Script(observation_space=spaces.Dict({"ear": spaces.Discrete(2), "eye": eye}))


not_an_env = 3


def returns_nothing() -> Any:
    return {}


def _zero(env: Any) -> Any:
    env.send(np.zeros((env.num_envs, env.action_space.dimensions), np.float32))
    return env.receive()


def test_termination_and_truncation() -> None:
    env = envs.from_envs([Script(), Script(end="truncated")])
    first = env.reset(0)
    assert first.first.all()
    steps = [_zero(env) for _ in range(5)]
    assert [s.observation[:, 0].tolist() for s in steps] == [[1, 1], [2, 2], [3, 0], [0, 1], [1, 2]]
    assert [s.reward.tolist() for s in steps] == [[11, 11], [12, 12], [13, 0], [0, 11], [11, 12]]
    assert [s.discount.tolist() for s in steps] == [[1, 1], [1, 1], [0, 1], [1, 1], [1, 1]]
    assert [s.last.tolist() for s in steps] == [
        [False, False],
        [False, True],
        [True, False],
        [False, False],
        [False, True],
    ]
    assert [s.first.tolist() for s in steps] == [
        [False, False],
        [False, False],
        [False, True],
        [True, False],
        [False, False],
    ]


def test_seeds_are_spread_and_only_given_once() -> None:
    scripts = [Script(), Script()]
    env = envs.from_envs(scripts)
    start = env.reset(7)
    for _ in range(5):
        later = _zero(env)
    assert scripts[0].seeds[0] != scripts[1].seeds[0]
    assert [s.seeds[1:] for s in scripts] == [[None], [None]]
    assert np.any(later.observation[:, 1] != start.observation[:, 1])  # the stream goes on
    np.testing.assert_array_equal(env.reset(7).observation, start.observation)
    assert np.all(env.reset(8).observation[:, 1] != start.observation[:, 1])
    # Neighbouring seeds share no environment.
    assert not {*gym_seeds(0)} & {*gym_seeds(1)}


def gym_seeds(seed: Any) -> Any:
    scripts = [Script() for _ in range(8)]
    envs.from_envs(scripts).reset(seed)
    return [s.seeds[0] for s in scripts]


def test_cartpole() -> None:
    env = envs.make("CartPole-v1", 3)
    steps = [env.reset(0), *(_zero(env) for _ in range(60))]
    assert env.observations.shape == (4,)
    over = [s for s in steps if s.last.any()]
    assert over
    assert all(s.discount[s.last].max() == 0 for s in over)
    copies = [np.array(s.observation) for s in steps]
    env.reset(1)
    _zero(env)
    for s, copy in zip(steps, copies, strict=True):
        np.testing.assert_array_equal(s.observation, copy)
    env.close()
    env.close()


def test_time_limit_of_gymnasium_is_no_termination() -> None:
    env = envs.make("Pendulum-v1", 1)
    env.reset(0)
    steps = [_zero(env) for _ in range(201)]
    assert [i for i, s in enumerate(steps) if s.last[0]] == [199]
    assert steps[199].discount[0] == 1
    assert steps[200].first[0]


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (spaces.Discrete(3, start=5), [2], 7),
        (spaces.MultiDiscrete([2, 3], start=[1, 0]), [1, 2], [2, 2]),
        (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
        (spaces.Box(-2, 4, (2,), np.float32), [-1, 1], [-2, 4]),
        (spaces.Box(0, 1, (), np.float32), [0], 0.5),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]), [1, 0], (1, [0.5])),
        (
            spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple([spaces.MultiBinary(1)])),
            [1, 0],
            {"b": 1, "a": ([0],)},
        ),
    ],
)
def test_actions_reach_the_environment(space: Any, action: Any, expected: Any) -> None:
    inner = Script(action_space=space)
    env = envs.from_envs([inner])
    if isinstance(space, spaces.Dict):
        # Gymnasium sorts a Dict given by keywords or not, depending on how it is built: go by its own order.
        action = [expected["b"] if key == "b" else expected["a"][0][0] for key in space.spaces]
    env.reset(0)
    env.send(np.array([action], np.float32))
    env.receive()
    (given,) = inner.actions
    if isinstance(expected, dict):
        assert given["b"] == expected["b"]
        np.testing.assert_array_equal(given["a"][0], expected["a"][0])
    elif isinstance(expected, tuple):
        assert given[0] == expected[0]
        np.testing.assert_array_equal(given[1], expected[1])
    else:
        np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (5,), np.uint8), (5,), np.float32),
        (spaces.Box(-1, 1, (2, 3), np.float64), (2, 3), np.float32),
        (spaces.Discrete(4, start=2), (4,), np.float32),
        (spaces.MultiDiscrete([2, 3]), (5,), np.float32),
        (spaces.Dict(x=spaces.Discrete(3), y=spaces.Box(-1, 1, (2, 2))), (7,), np.float32),
        (spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-1, 1, (1,))]), (3,), np.float32),
    ],
)
def test_observations(space: Any, shape: Any, dtype: Any) -> None:
    space.seed(0)
    env = envs.from_envs([Script(observation_space=space), Script(observation_space=space)])
    step = env.reset(0)
    assert env.observations.shape == shape
    assert env.observations.dtype == dtype
    for s in (step, _zero(env)):
        assert s.observation.shape == (2, *shape)
        assert s.observation.dtype == dtype


def test_discrete_observation_is_one_hot() -> None:
    space = spaces.Discrete(3, start=5)
    adapter = gym.GymEnv(Script(observation_space=space))
    np.testing.assert_array_equal(adapter.observations.one(6), [0, 1, 0])


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_other_observations_are_refused(space: Any) -> None:
    with pytest.raises(UserError, match=r"observation space .* is not supported"):
        envs.from_envs([Script(observation_space=space)])


def test_images_stay_bytes_and_may_be_chosen_out_of_a_dict() -> None:
    image = spaces.Box(0, 255, (8, 9, 3), np.uint8)
    seen = envs.from_envs([Script(observation_space=image)]).reset(0).observation
    assert (seen.shape, seen.dtype) == ((1, 8, 9, 3), np.uint8)
    both = envs.from_envs([Script(observation_space=spaces.Dict({"ear": spaces.Discrete(2), "eye": image}))])
    assert both.reset(0).observation.shape == (1, 8 * 9 * 3 + 4 * 2)
    env = envs.make(f"{__name__}:looking?observe=eye", 2)
    assert env.reset(0).observation.shape == (2, 4, 4, 3)
    with pytest.raises(UserError, match="unknown part of the observation 'eyes': did you mean eye"):
        envs.make(f"{__name__}:looking?observe=eyes", 1)


@pytest.mark.parametrize("limit", [np.inf, np.finfo(np.float32).max])
def test_infinite_actions_are_refused_unless_bounded(limit: float) -> None:
    space = spaces.Dict({"a": spaces.MultiBinary(2), "b": spaces.Tuple([spaces.Box(-limit, limit, (1,))])})
    with pytest.raises(UserError, match=r"unbounded.*bound=10"):
        envs.from_envs([Script(action_space=space)])
    script = Script(action_space=space)
    env = envs.from_envs([adapters.adapt(script, bound=3)])
    assert env.action_space.subactions == (Discrete(2), Discrete(2), Interval(-3, 3))
    env.reset(0)
    env.send(np.array([[1, 0, 0.5]], np.float32))
    env.receive()
    (action,) = script.actions
    assert (action["a"].tolist(), action["b"][0].tolist()) == ([1, 0], [1.5])
    with pytest.raises(UserError, match="bound is 'wide': expected a number above 0"):
        adapters.adapt(Script(action_space=space), bound="wide")


def test_options_of_an_id_reach_the_constructor() -> None:
    assert ids.split("a/b?x=1&y=2.5&z=True&w=text") == ("a/b", {"x": 1, "y": 2.5, "z": True, "w": "text"})
    assert ids.with_option("a/b?x=1&y=2", "x", 3) == "a/b?x=3&y=2"
    assert ids.with_option("a/b", "x", "text") == "a/b?x=text"
    env = envs.make(f"{__name__}:script_that_ends?end=truncated", 1)
    env.reset(0)
    assert [_zero(env).last.item() for _ in range(2)] == [False, True]
    with pytest.raises(UserError, match="unexpected keyword argument 'colour'"):
        envs.make(f"{__name__}:script_that_ends?colour=red", 1)
    for env_id, words in (("CartPole-v1?x", "name=value"), ("CartPole-v1?x=1&x=2", "twice")):
        with pytest.raises(UserError, match=words):
            envs.make(env_id, 1)


def test_vectors_share_their_spaces() -> None:
    with pytest.raises(UserError, match="different spaces"):
        envs.from_envs([Script(), Script(action_space=spaces.Discrete(3))])
    with pytest.raises(UserError, match="at least 1"):
        envs.from_envs([])
    same = Script()
    with pytest.raises(UserError, match="twice"):
        envs.from_envs([same, same])


def test_factories() -> None:
    env = envs.make(f"{__name__}:script", 2)
    assert env.num_envs == 2
    assert env.reset(0).observation.shape == (2, 2)


def test_gymnasium_module_syntax(tmp_path: Any, monkeypatch: Any) -> None:
    source = f"import gymnasium\ngymnasium.register('ScriptTest-v0', entry_point='{__name__}:Script')\n"
    (tmp_path / "registers_script.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert envs.make("registers_script:ScriptTest-v0", 1).reset(0).observation.shape == (1, 2)
        with pytest.raises(UserError, match="did you mean ScriptTest-v0"):
            envs.make("registers_script:ScripTest-v0", 1)
    finally:
        gymnasium.registry.pop("ScriptTest-v0", None)
        sys.modules.pop("registers_script", None)


def test_factory_in_the_current_directory(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "beside_me.py").write_text(f"from {__name__} import script as make_one\n")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.chdir(tmp_path)
    assert envs.make("beside_me:make_one", 1).num_envs == 1
    sys.modules.pop("beside_me", None)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("control/walker-wlak", "did you mean control/walker-walk"),
        ("control/cart-pole", "unknown environment 'control/cart-pole'"),
        ("toy/countin", "did you mean toy/counting"),
        ("CartPole-v7", "CartPole-v1"),
        ("CartPol-v1", "did you mean CartPole-v1"),
        ("walker-walk", "control/walker-walk"),
        ("no_such_module:make", "there is no module 'no_such_module'"),
        (f"{__name__}:scrip", "did you mean script"),
        (f"{__name__}:not_an_env", "is no callable but 3"),
        (f"{__name__}:returns_nothing", "returned dict: expected a gymnasium.Env"),
    ],
)
def test_unknown_ids(env_id: Any, message: Any) -> None:
    with pytest.raises(UserError, match=message) as error:
        envs.make(env_id, 1)
    assert "\n" not in str(error.value)


def test_bad_arguments() -> None:
    with pytest.raises(UserError, match="num_envs is 0"):
        envs.make("toy/counting", 0)
    with pytest.raises(UserError, match="unknown backend 'envpol': did you mean envpool"):
        control.make("control/walker-walk", 1, backend="envpol")


def test_list() -> None:
    ids = envs.list_ids()
    assert "toy/chain" in ids
    assert "control/humanoid_CMU-run" in ids
    assert len(ids) == len(set(ids))


def test_missing_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.setitem(sys.modules, "dm_control", None)
    monkeypatch.delitem(sys.modules, "dm_control.suite", raising=False)
    with pytest.raises(UserError, match=r"pip install 'aql\[control\]'"):
        envs.make("control/walker-walk", 1)
    with pytest.raises(UserError, match=r"pip install 'aql\[control\]'"):
        control.make("control/walker-walk", 1, backend="envpool")
    with pytest.raises(UserError, match=r"pip install 'aql\[control\]'"):
        envs.make_rendered("control/walker-walk")


def test_dm_control_steps_in_for_envpool(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    env = envs.make("control/pendulum-swingup", 1)
    assert env.reset(0).observation.shape == (1, 3)


def test_pictures() -> None:
    env = envs.make_rendered(f"{__name__}:script")
    env.reset(0)
    _zero(env)
    np.testing.assert_array_equal(env.render(), np.ones((4, 6, 3), np.uint8))
    with pytest.raises(UserError, match="rgb_array"):
        envs.make_rendered(f"{__name__}:plain").render()
    with pytest.raises(UserError, match="no picture"):
        envs.make_rendered("toy/chain")


def test_a_missing_driver_is_one_line(monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("No OpenGL rendering backend is available.")

    monkeypatch.setattr(control.DmControlEnv, "render", fail)
    with pytest.raises(UserError, match="apt install libegl1 libgl1-mesa-dri"):
        envs.make_rendered("control/pendulum-swingup")


def test_envpool_names() -> None:
    assert control.envpool_id("ball_in_cup", "catch") == "BallInCupCatch-v1"
    assert control.envpool_id("humanoid_CMU", "run") == "HumanoidCMURun-v1"
    assert control.envpool_id("lqr", "lqr_2_1") == "LqrLqr21-v1"


def test_envpool_comes_without_what_slows_its_import_down() -> None:
    script = """
import sys
from aql import envs
envs.make("control/cartpole-swingup", 1).close()
assert "matplotlib" not in sys.modules
import envpool
assert "CVRP-v1" not in envpool.list_all_envs()
import envpool.jumanji.registration
assert "CVRP-v1" in envpool.list_all_envs()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
