"""d3pg and impala learn toys whose answers are known, with thresholds that a random policy misses by far."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from toy_training import embed, greedy_return, train

import aql
from aql.envs import toys
from aql.networks import apply
from aql.presets import preset
from aql.runtime.local import Trainer

SMALL: dict[str, Any] = {
    "critic_layers": (64, 64),
    "proposal_layers": (64,),
    "eval_every": 10**9,
    "log_every": 10**9,
    "bins": 9,
}
D3PG = SMALL | {
    "num_critics": 1,
    "actors": 32,
    "random_steps": 1000,
    "replayed_per_new": 3,
    "replay_capacity": 1000,
    "updates_per_call": 1,
    "learning_rate": 3e-3,
}
IMPALA = SMALL | {
    "actors": 32,
    "unroll_length": 4,
    "batch_size": 32,
    "updates_per_call": 1,
    "learning_rate": 3e-3,
    "proposal_learning_rate": 3e-3,
    "policy_entropy_weight": 0.01,
}


def _train(env: str, agent: str, steps: int, **settings: Any) -> Trainer:
    return train(preset("fast", env=env, agent=agent, steps=steps, **settings), toys.TOYS[env])


# Bandits earn 1 for the best action only; random policies earn 0.13 (discrete), 0.12 (continuous) and 0.11 (hybrid).
# Thresholds were set after looking at results of one seed.


def test_d3pg_solves_a_continuous_bandit() -> None:
    learned = greedy_return(_train("toy/bandit-continuous", "d3pg", 24_000, gamma=0.0, **D3PG))
    print(f"d3pg: {learned:.3f}")
    assert learned > 0.8


class Slope(gymnasium.Env):
    """A place that moves by a tenth of the action, and pays what it is above 0 at the end of ten steps alone."""

    observation_space = gymnasium.spaces.Box(-1.1, 1.1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._steps = 0.0, 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._place += 0.1 * float(action[0])
        self._steps += 1
        over = self._steps == 10
        return self._observe(), self._place if over else 0.0, over, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self._place, self._steps / 10], np.float32)


def test_d3pg_climbs_a_slope_that_pays_at_its_end() -> None:
    """Values have to travel ten steps back; random policies earn 0, and the best one 1."""
    few = {"actors": 8, "random_steps": 400, "gamma": 0.95, "eval_episodes": 2}
    few |= {"target_ema": 0.05, "effort_weight": 0.0}  # the best action is at its bound
    model = aql.AQL(Slope, agent="d3pg", **SMALL | few)
    model.learn(6_000, progress=False)
    earned = model.evaluate(2).mean
    model.close()
    print(f"slope: {earned:.3f}")
    assert earned > 0.9


def test_impala_remembers() -> None:
    """What was shown at first has to be said at the end: 0.5 without a memory."""
    settings = IMPALA | {"unroll_length": 8, "memory_size": 16}
    learned = greedy_return(_train("toy/recall", "impala", 50_000, gamma=0.9, **settings))
    print(f"recall: {learned:.3f}")
    assert learned > 0.95


@pytest.mark.parametrize(
    ("env", "agent", "threshold"),
    [("discrete", "impala", 0.6), ("hybrid", "impala", 0.4), ("hybrid", "impala-gaussian", 0.33)],
)
def test_impala_solves_bandits(env: str, agent: str, threshold: float) -> None:
    learned = greedy_return(_train(f"toy/bandit-{env}", agent, 64_000, gamma=0.0, **IMPALA))
    print(f"{env} {agent}: {learned:.3f}")
    assert learned > threshold


# Values.


def _values(trainer: Trainer, observation: np.ndarray) -> np.ndarray:
    agent: Any = trainer.agent
    state: Any = trainer.learner._state
    embedding = embed(trainer, state.params.torso, state.params.statistics, observation)
    return np.asarray(apply(agent._value, state.value, embedding))


def test_impala_walks_the_chain_past_the_bait() -> None:
    """A random walk needs 49 steps on average, and a policy that takes the bait earns 0.01 a step."""
    patient = IMPALA | {"unroll_length": 8, "learning_rate": 1e-3, "proposal_learning_rate": 1e-3}
    trainer = _train("toy/chain", "impala", 64_000, gamma=0.9, **patient)
    values = _values(trainer, np.eye(8, dtype=np.float32)[:-1])
    print("chain:", values, greedy_return(trainer))
    np.testing.assert_allclose(values, 0.9 ** np.arange(6, -1, -1), atol=0.15)
    assert greedy_return(trainer) == 1


def test_impala_knows_limits_from_ends() -> None:
    value = _values(_train("toy/time-limit", "impala", 48_000, gamma=0.9, **IMPALA), np.ones((1, 1), np.float32))
    print("time limit:", value)
    np.testing.assert_allclose(value, 10, atol=0.7)  # 1 / (1 - 0.9); 6.5 at most if the limit were an end
    observation = np.arange(10, dtype=np.float32)[:, None] / 10
    values = _values(_train("toy/termination", "impala", 48_000, gamma=0.9, **IMPALA), observation)
    print("termination:", values)
    np.testing.assert_allclose(values, toys.Termination(1).optimal_value(observation, 0.9), atol=0.7)
