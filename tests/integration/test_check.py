"""`aql check`: every fault that an environment can have is found, named and explained."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from aql import cli

BOX = spaces.Box(-1, 1, (2,), np.float32)


class Sound(gymnasium.Env):
    """Nothing is wrong with it."""

    observation_space: Any = BOX
    action_space: Any = spaces.Dict({"tool": spaces.Discrete(3), "where": spaces.Box(-2, 2, (2,), np.float32)})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        reward, over = float(self.np_random.normal()), bool(self.np_random.random() < 0.1)
        return self.observe(), reward, over, self.t == 20 and not over, {}

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Nan(Sound):
    def observe(self) -> Any:
        return np.full(2, np.nan if self.t == 3 else 0.5, np.float32)


class WrongShape(Sound):
    def observe(self) -> Any:
        return np.zeros(3, np.float32)


class WrongType(Sound):
    def observe(self) -> Any:
        return super().observe().astype(np.float64)


class Outside(Sound):
    def observe(self) -> Any:
        return super().observe() * np.array([1, 4], np.float32)


class Endless(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class LimitAsTermination(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.t == 20, False, info


class OldApi(Sound):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class OldReset(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class NumberAsFlag(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class RewardNan(Sound):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float("inf"), *rest


class LargeReward(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, 1e5 * reward, *rest


class Chance(Sound):
    def observe(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


class ChanceInSteps(Chance):
    def observe(self) -> Any:
        return super().observe() if self.t else np.zeros(2, np.float32)


class NewSpaces(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if hasattr(self, "t"):
            self.action_space = spaces.Discrete(2)
        return super().reset(seed=seed)


class NoInfo(Sound):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], None


class RewardNone(Sound):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, None, *rest


class NeedsMore(Sound):
    def __init__(self, size: int) -> None:
        self.size = size


class Raises(Sound):
    def step(self, action: Any) -> Any:
        raise RuntimeError("the motor is off")


class Unbounded(Sound):
    action_space = spaces.Box(-np.inf, np.inf, (2,))


class NoChoice(Sound):
    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {"action_mask": np.array([1, 1, 0] if self.t != 2 else [0, 0, 0])}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {"action_mask": np.ones(3, np.int8)}


class Masked(NoChoice):
    def step(self, action: Any) -> Any:
        assert action["tool"] != 2 or self.t == 0
        *rest, _ = super().step(action)
        return *rest, {"action_mask": np.array([1, 1, 0])}


def _check(capsys: Any, name: str, *more: str) -> tuple[int, str]:
    code = cli.main(["check", f"{__name__}:{name}", "--steps", "300", *more])
    return code, " ".join(capsys.readouterr().out.split())


def test_a_sound_environment_passes(capsys: Any) -> None:
    code, output = _check(capsys, "Sound")
    assert code == 0
    assert "becomes (2,) of float32" in output
    assert "['tool'] one of 3 a softmax over 3 choices" in output
    assert "['where'][0] to ['where'][1] in [-2, 2] 5 bins: -2, -1, 0, 1, 2" in output
    assert "actions 3 x 5^2 = 75" in output
    assert "fit for training" in output
    assert "warning" not in output
    assert "error" not in output


def test_enormous_spaces_are_counted(capsys: Any) -> None:
    assert cli.main(["check", "control/humanoid-stand", "--steps", "20"]) == 0
    output = capsys.readouterr().out
    assert "5^21 = 4.8e+14" in output


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("hybrid/moving", "3 x 5^2 = 75"),
        ("hybrid/allocation", "5^10 = 9.8e+06"),
        ("doom/explore_goal_locations_tiny?resolution=42", "7^2 x 3^2 x 2^3 = 3,528"),
        ("toy/chain", "exact search in 2 actions"),
    ],
)
def test_our_own_environments_pass(capsys: Any, env_id: str, words: str) -> None:
    assert cli.main(["check", env_id, "--steps", "60"]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


def test_masks_are_obeyed_and_told(capsys: Any) -> None:
    code, output = _check(capsys, "Masked")
    assert code == 0
    assert "masks 3 entries" in output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Nan", "infinite or not a number"),
        ("WrongShape", "shape (3,): expected (2,)"),
        ("Outside", "in entry 1, outside of its space's [-1, 1]: widen the space"),
        ("OldApi", "step gave (ndarray, float, bool, bool): it must give (observation, reward, terminated, truncated"),
        ("NoInfo", "step gave (ndarray, float, bool, bool, NoneType)"),
        ("RewardNone", "the reward is None at step 1 of an episode"),
        ("NewSpaces", "changed its spaces at a reset"),
        ("NeedsMore", "the environment cannot be made, TypeError"),
        ("OldReset", "reset gave ndarray: it must give (observation, info)"),
        ("NumberAsFlag", "of int: it must be True or False"),
        ("RewardNan", "the reward is inf at step 1 of an episode"),
        ("Raises", "the environment raised RuntimeError: the motor is off"),
        ("Unbounded", "unbounded"),
        ("NoChoice", "allows no choice of sub-action 0: expected at least one (at step 2 of an episode)"),
    ],
)
def test_what_training_would_fail_at_is_an_error(capsys: Any, name: str, words: str) -> None:
    code, output = _check(capsys, name)
    assert code == 2
    assert words in output
    assert "not fit for training" in output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("WrongType", "observations are float64, and their space says float32"),
        ("Endless", "no episode ended in 300 random steps"),
        ("LimitAsTermination", "every episode was terminated after exactly 20 steps"),
        ("LargeReward", "divide them so that they are about 1"),
        ("Chance", "differ in the observation of the reset after 0 steps: take all randomness from self.np_random"),
        ("ChanceInSteps", "differ at step 0: take all randomness from self.np_random"),
    ],
)
def test_what_training_would_suffer_from_is_a_warning(capsys: Any, name: str, words: str) -> None:
    code, output = _check(capsys, name)
    assert code == 0
    assert output.count("warning") == 1
    assert words in output


def test_bad_options(capsys: Any) -> None:
    assert cli.main(["check", "CartPole-v1", "--steps", "0"]) == 2
    assert cli.main(["check", "CartPool-v1"]) == 2
    assert "did you mean CartPole-v" in capsys.readouterr().err
