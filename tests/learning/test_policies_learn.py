"""d3pg and impala learn toys whose answers are known, with thresholds that a random policy misses by far."""

from typing import Any

import numpy as np
import pytest
from toy_training import embed, greedy_return, train

from aql.config import preset
from aql.envs import toys
from aql.networks import apply
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
