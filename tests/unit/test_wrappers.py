"""Actions that are held for several steps, against the same environments step by step."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from aql import envs
from aql.envs.wrappers import Repeated
from aql.errors import UserError
from aql.presets import preset


def test_a_held_action_equals_the_same_action_several_times() -> None:
    single, held = envs.make("control/cheetah-run", 2), envs.repeated(envs.make("control/cheetah-run", 2), 3)
    single.reset(5), held.reset(5)
    rng = np.random.default_rng(0)
    for _ in range(4):
        action = rng.uniform(-1, 1, (2, 6)).astype(np.float32)
        earned = np.zeros(2, np.float32)
        for _ in range(3):
            single.send(action)
            then = single.receive()
            earned = earned + then.reward
        held.send(action)
        now = held.receive()
        np.testing.assert_array_equal(now.observation, then.observation)
        np.testing.assert_array_equal(now.reward, earned)
    assert earned.any()


def test_a_held_action_ends_with_the_episode() -> None:
    """1000 steps in decisions of 3: 333 whole ones and one of a single step; the next one only begins an episode."""
    env = envs.repeated(envs.make("control/cartpole-balance", 1), 3)
    now = env.reset(0)
    zero, decisions = np.zeros((1, 1), np.float32), 0
    while not now.last.all():
        env.send(zero)
        now = env.receive()
        decisions += 1
        assert not now.first.any()
    assert decisions == 334
    env.send(zero)
    begun = env.receive()
    assert begun.first.all()
    np.testing.assert_array_equal(begun.reward, 0)


def test_what_else_the_environments_tell_is_still_told() -> None:
    env = Repeated(envs.make("hybrid/platform", 2), 2)
    env.reset(0)
    assert np.isnan(env.success).all()
    assert not hasattr(env, "nonsense")


def test_control_tasks_make_one_update_per_step() -> None:
    control = preset("fast")
    assert (1 + control.replayed_per_new) / control.batch_size / control.unroll_length / control.action_repeat == 1
    assert (control.critic_layers, control.proposal_layers) == ((128, 128), (128, 64))
    impala = preset("fast", agent="impala")  # whose settings of the task are its own
    assert (impala.replayed_per_new, impala.critic_layers, impala.proposal_layers) == (0, (256, 256), (256, 128))
    with pytest.raises(UserError, match="action_repeat is 0: expected at least 1"):
        preset("fast", action_repeat=0)


def test_an_action_is_not_held_where_it_may_become_forbidden() -> None:
    class Masked(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(3)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros(1, np.float32), {"action_mask": np.array([1, 0, 1], np.int8)}

    with pytest.raises(UserError, match="action_repeat is 2 and the environment masks actions"):
        envs.repeated(envs.from_envs([Masked()]), 2).reset(0)
