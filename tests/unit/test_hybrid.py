"""The hybrid tasks: their physics in numbers, policies that solve them, and optima that are optima."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from aql import agents, envs
from aql.agents.base import EnvSpec
from aql.envs.hybrid import HYBRIDS
from aql.envs.hybrid.allocation import Allocation
from aql.errors import UserError
from aql.evaluation import Evaluator
from aql.presets import preset

ACCELERATE, TURN, BRAKE = range(3)
RUN, HOP, LEAP = range(3)

Policy = Callable[[np.ndarray], Any]

each_task = pytest.mark.parametrize("gymnasium_id", HYBRIDS.values())
each_point = pytest.mark.parametrize("gymnasium_id", ["aql/Moving-v0", "aql/Sliding-v0"])


def _play(env: gymnasium.Env, policy: Policy, seed: int) -> tuple[float, int, dict[str, Any]]:
    """The return and the length of an episode, and what its last step says."""
    observation, info = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(policy(observation))
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
        info = {**info, "truncated": truncated, "reward": reward}
    return total, steps, info


def _random(env: gymnasium.Env) -> Policy:
    env.action_space.seed(0)
    return lambda _: env.action_space.sample()


# Platform's parameters have their published ranges; ours is to scale them, not the environment's.
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space:UserWarning")
@each_task
def test_gymnasium_finds_no_fault(gymnasium_id: str) -> None:
    check_env(gymnasium.make(gymnasium_id, render_mode="rgb_array").unwrapped)


@each_task
def test_an_episode_is_a_function_of_the_seed(gymnasium_id: str) -> None:
    def play(seed: int) -> tuple[list[np.ndarray], float]:
        env = gymnasium.make(gymnasium_id)
        seen = []
        random = _random(env)

        def policy(observation: np.ndarray) -> Any:
            seen.append(observation)
            return random(observation)

        first = _play(env, policy, seed)[0]
        again = _play(env, _random(env), seed)[0]
        assert first == again  # nothing is left from the episode before
        return seen, first

    (seen, total), (same, same_total), (_, other_total) = play(3), play(3), play(4)
    np.testing.assert_array_equal(seen, same)
    assert total == same_total != other_total


@pytest.mark.parametrize("env_id", HYBRIDS)
def test_actions_and_observations_fit_their_spaces(env_id: str) -> None:
    assert env_id in envs.list_ids()
    vector = envs.make(env_id, 2)
    single = gymnasium.make(HYBRIDS[env_id])
    now = vector.reset(seed=0)
    for action in np.asarray(vector.action_space.sample(jax.random.key(0), (300, 2))):
        assert all(single.action_space.contains(vector.action_space.to_env(one)) for one in action)
        vector.send(action)
        now = vector.receive()
        assert all(single.observation_space.contains(one) for one in now.observation)


def test_a_misspelt_task_is_told() -> None:
    with pytest.raises(UserError, match="hybrid/moving"):
        envs.make("hybrid/movin", 1)


@pytest.mark.parametrize("env_id", HYBRIDS)
def test_pictures_show_what_happens(env_id: str) -> None:
    env = envs.make_rendered(env_id)
    env.reset(seed=0)
    before = env.render()
    env.send(np.ones((1, env.action_space.dimensions), np.float32))
    env.receive()
    after = env.render()
    assert before.shape == after.shape == (*before.shape[:2], 3)
    assert before.dtype == np.uint8
    assert 0 < np.mean(before != after) < 0.2


# Moving and Sliding.


@each_point
def test_a_push_adds_half_a_unit_of_speed(gymnasium_id: str) -> None:
    env = gymnasium.make(gymnasium_id)
    start, _ = env.reset(seed=0)
    for _ in range(3):
        now, reward, *_ = env.step((ACCELERATE, (1, 0)))
    # Speeds 0.5, 1 and 1.5 for 0.005 seconds each.
    cosine, sine = start[-7:-5]
    assert math.hypot(*now[2:-7]) == pytest.approx(1.5)
    np.testing.assert_allclose(now[:2] - start[:2], [0.015 * cosine, 0.015 * sine], atol=1e-6)
    distance = math.hypot(*(now[-5:-3] - now[:2]))
    assert now[-3] == pytest.approx(distance, abs=1e-6)
    before = now[:2] - np.array([0.0075 * cosine, 0.0075 * sine])
    assert reward == pytest.approx(math.hypot(*(now[-5:-3] - before)) - distance - 0.001, abs=1e-6)
    assert now[-1] == pytest.approx(3 / 200)
    for rest in (1.4, 1.3):
        now, *_ = env.step((BRAKE, (1, 1)))
        assert math.hypot(*now[2:-7]) == pytest.approx(rest)


@pytest.mark.parametrize(
    ("gymnasium_id", "velocity"),
    [("aql/Moving-v0", [0.0, 0.75]), ("aql/Sliding-v0", [0.5, 0.25])],  # along the old heading, and to its left
)
def test_turning_takes_the_velocity_along_unless_the_point_slides(gymnasium_id: str, velocity: list[float]) -> None:
    env = gymnasium.make(gymnasium_id)
    start, _ = env.reset(seed=1)
    env.step((ACCELERATE, (1, 0)))
    before, *_ = env.step((TURN, (0, 1)))
    now, *_ = env.step((ACCELERATE, (0.5, 0)))
    cosine, sine = start[-7:-5]
    np.testing.assert_allclose(now[-7:-5], [-sine, cosine], atol=1e-6)  # a quarter to the left
    moved = (now[:2] - before[:2]) / 0.005
    np.testing.assert_allclose([moved @ [cosine, sine], moved @ [-sine, cosine]], velocity, atol=1e-4)
    if gymnasium_id == "aql/Sliding-v0":
        np.testing.assert_allclose(moved, now[2:4], atol=1e-4)
    else:
        assert now[2] == pytest.approx(0.75)


def _drive(observation: np.ndarray) -> Any:
    """Turns to the target at rest, then accelerates as long as it can still brake before the target's centre."""
    x, y, *velocity, cosine, sine, target_x, target_y, distance, _, _ = observation.tolist()
    speed = math.hypot(*velocity)
    aside = math.remainder(math.atan2(target_y - y, target_x - x) - math.atan2(sine, cosine), 2 * math.pi)
    if speed == 0 and abs(aside) > 0.01:
        return TURN, (0, np.clip(aside / (math.pi / 2), -1, 1))
    faster = speed + 0.5
    braking = 0.005 * sum(faster - 0.1 * k for k in range(int(faster / 0.1) + 1))
    return (ACCELERATE, (1, 0)) if braking < distance else (BRAKE, (0, 0))


@each_point
def test_a_driver_stops_in_the_target_and_chance_does_not(gymnasium_id: str) -> None:
    env = gymnasium.make(gymnasium_id)
    driven = [_play(env, _drive, seed) for seed in range(100)]
    assert np.mean([info["success"] for *_, info in driven]) >= 0.95
    assert np.mean([total for total, *_ in driven]) > 1.8
    chance = [_play(env, _random(env), seed) for seed in range(100)]
    assert np.mean([info["success"] for *_, info in chance]) < 0.1
    assert np.mean([total for total, *_ in chance]) < -0.5


@each_point
def test_leaving_the_field_and_running_out_of_time_cost_a_point(gymnasium_id: str) -> None:
    env = gymnasium.make(gymnasium_id)
    _, steps, info = _play(env, lambda _: (ACCELERATE, (1, 0)), seed=0)
    assert steps < 60
    assert (info["reward"], info["success"], info["truncated"]) == (-1, False, False)
    total, steps, info = _play(env, lambda _: (TURN, (0, 0.3)), seed=0)
    assert steps == 200
    assert total == pytest.approx(-1 - 199 * 0.001)
    assert (info["reward"], info["success"], info["truncated"]) == (-1, False, False)


# Platform.


def _act(kind: int, parameter: float) -> Any:
    parameters: list[list[float]] = [[0], [0], [0]]
    parameters[kind] = [parameter]
    return kind, parameters


def _position(observation: np.ndarray) -> float:
    return float(observation[0]) * 1055 - 20


def test_running_and_hopping_have_their_length() -> None:
    env = gymnasium.make("aql/Platform-v0")
    start, _ = env.reset(seed=0)
    # x, speed, enemy at 230 walking left at 30; 250 wide, next 275 wide, gap of 225, from 0, level.
    np.testing.assert_allclose(start, [20 / 1055, 0, 230 / 1035, 0, 250 / 275, 1, 225 / 235, 0, 0], rtol=1e-6)
    now, reward, *_ = env.step(_act(RUN, 30))
    # Ticks with speeds 30, 59.7 and 18 times 70, less a little noise.
    assert _position(now) == pytest.approx(67.485, abs=0.05)
    assert reward == pytest.approx(67.485 / 1035, abs=1e-4)
    assert now[1] == pytest.approx(0.693)
    env.reset(seed=0)
    lengths = []
    for seed in range(20):
        env.reset(seed=seed)
        now, *_ = env.step(_act(HOP, 720))
        assert now[1] == 0
        lengths.append(_position(now))
    # From rest a hop gains a speed of 30 that decays by 0.99 in each of its 2 * 35 / 9.8 / 0.05 = 143 ticks at most.
    most = 30 * 0.05 * (1 - 0.99**144) / 0.01
    assert 0.9 * most < min(lengths) < max(lengths) <= most


def _traverse(observation: np.ndarray) -> Any:
    """Hops over the enemy from rest, then runs up to the edge and hops over the gap."""
    x, speed, enemy = _position(observation), float(observation[1]) * 100, float(observation[2]) * 1035
    edge = 250 if x < 455 else 750 if x < 965 else 1100
    if (speed == 0 and enemy > x and edge < 1000) or (speed > 40 and edge - x < 60):
        return _act(HOP, 720)
    return _act(RUN, 30 if edge - x > 71 else 0)


def test_platform_can_be_traversed_but_not_by_chance() -> None:
    env = gymnasium.make("aql/Platform-v0")
    played = [_play(env, _traverse, seed) for seed in range(50)]
    assert np.mean([total for total, *_ in played]) > 0.97
    assert np.mean([info["success"] for *_, info in played]) > 0.9
    assert max(total for total, *_ in played) == pytest.approx(1)
    chance = [_play(env, _random(env), seed) for seed in range(50)]
    assert np.mean([total for total, *_ in chance]) < 0.25
    assert not any(info["success"] for *_, info in chance)


def test_the_enemy_comes_and_the_time_limit_truncates() -> None:
    env = gymnasium.make("aql/Platform-v0")
    total, steps, info = _play(env, lambda _: _act(RUN, 0), seed=0)
    assert total == 0
    assert steps == math.ceil((230 - 20) / 30 + 0.01)  # seconds until it touches
    assert not info["truncated"]
    assert not info["success"]

    def stay_at_last(observation: np.ndarray) -> Any:
        return _act(RUN, 0) if _position(observation) > 965 else _traverse(observation)

    _, steps, info = _play(env, stay_at_last, seed=0)
    assert (steps, info["truncated"], info["success"]) == (250, True, False)


def test_who_does_not_reach_the_next_platform_falls() -> None:
    env = gymnasium.make("aql/Platform-v0")
    observation, _ = env.reset(seed=0)
    while _position(observation) < 150:
        observation, *_ = env.step(_traverse(observation))
    observation, _, terminated, _, info = env.step(_act(LEAP, 0))
    assert terminated
    assert not info["success"]
    assert 250 < _position(observation) < 455


# Allocation.


def _programmed_optimum(worth: np.ndarray, budget: int, most: int) -> float:
    """The best value within the budget, by dynamic programming over the projects."""
    best = np.zeros(budget + 1)  # by units that are left
    for value in worth:
        best = np.array(
            [
                max(best[left - n] + value * math.sqrt(n) for n in range(min(most, left) + 1))
                for left in range(budget + 1)
            ]
        )
    return float(best[budget])


def test_no_allocation_is_better_than_the_best() -> None:
    env = Allocation(projects=4, most=3)
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        best = env.optimal_action(observation)
        everything = [env.value(observation, np.array(units)) for units in itertools.product(range(4), repeat=4)]
        assert env.value(observation, best) == pytest.approx(max(everything))
        assert env.step(best)[1] == pytest.approx(1)


def test_the_optimum_of_ten_million_is_that_of_dynamic_programming() -> None:
    env = Allocation()
    assert env.action_space == gymnasium.spaces.MultiDiscrete([5] * 10)
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        optimum = _programmed_optimum(observation[:-1], round(observation[-1]), 4)
        assert env.value(observation, env.optimal_action(observation)) == pytest.approx(optimum)


def test_an_allocation_costs_what_is_beyond_the_budget() -> None:
    env = Allocation(projects=2, most=4)  # budgets of 1 to 3
    observation = np.array([0.5, 1.0, 3.0], np.float32)
    assert env.value(observation, np.array([0, 3])) == pytest.approx(math.sqrt(3))
    assert env.value(observation, np.array([1, 2])) == pytest.approx(0.5 + math.sqrt(2))
    assert env.value(observation, np.array([4, 4])) == pytest.approx(1 + 2 - 5)
    assert env.optimal_action(observation).tolist() == [1, 2]


def test_neither_chance_nor_every_project_for_itself_allocates_well() -> None:
    env = Allocation()
    rng = np.random.default_rng(0)
    best_of_64, alone = [], []
    for seed in range(100):
        observation, _ = env.reset(seed=seed)
        optimum = env.value(observation, env.optimal_action(observation))
        candidates = rng.integers(0, 5, (64, 10))
        best_of_64.append(max(env.value(observation, units) for units in candidates) / optimum)
        alone.append(env.value(observation, np.full(10, 4)) / optimum)
    assert np.mean(best_of_64) < 0.6
    assert np.mean(alone) < -1


# Success.


class _Once(gymnasium.Env):
    """One step, and what it says about its success."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **info: Any) -> None:
        self._info = info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, True, False, self._info


@pytest.mark.parametrize(
    ("infos", "share"),
    [
        ([{"success": True}, {"success": False}, {"is_success": True}, {"success": np.True_}], 0.75),
        ([{"success": False}, {"success": False}], 0.0),
        ([{"success": True}, {}], None),
    ],
)
def test_an_evaluation_tells_the_share_of_successes(infos: list[dict[str, Any]], share: float | None) -> None:
    vector = envs.from_envs([_Once(**info) for info in infos])
    agent = agents.make(preset("fast"), EnvSpec.of(vector))
    evaluator = Evaluator(agent, vector, seed=0)
    evaluator.evaluate(agent.acting_params(agent.init(jax.random.key(0))))
    assert evaluator.success == share
