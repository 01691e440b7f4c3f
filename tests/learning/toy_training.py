"""How the learning tests train, and how they look at what was learned."""

from typing import Any

import jax
import numpy as np

from aql.config import Config
from aql.experience import Unroll
from aql.runtime.local import Trainer


def train(config: Config, make: Any) -> Trainer:
    """Trains to the end of the config on toys that `make(num_envs)` gives."""
    trainer = Trainer.in_process(config, make(config.actors), make(256))
    while trainer.actor.steps < config.steps:
        trainer.step(_silent)
    return trainer


def greedy_return(trainer: Trainer) -> float:
    """The mean over 256 episodes."""
    return trainer.evaluate(_silent).mean


def embed(trainer: Trainer, torso: Any, statistics: Any, observation: np.ndarray) -> jax.Array:
    """[B, E] what the networks of a trained agent see of observations [B, ...]."""
    agent: Any = trainer.agent
    seen = Unroll(observation[:, None], None, np.zeros((len(observation), 1)), None, None, None, {})
    return agent._embedding.learn(torso, statistics, seen)[:, 0]


def _silent(actor_steps: int, **metrics: Any) -> None:
    """Nobody listens."""
