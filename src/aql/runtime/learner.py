"""The learner's half of Algorithm 2: batches unrolls and updates the agent, several updates in one compiled call."""

import functools
import math
from typing import Any

import jax
import numpy as np

from aql.agents.base import Agent, LearnerState, Metrics, Params
from aql.config import Config
from aql.errors import UserError
from aql.experience import Unroll, concatenate
from aql.runtime import checkpoint, seeding


class DivergedError(UserError):
    """Learning has come to nothing: what it would go on with, or save, are no numbers."""


class Learner:
    """Takes unrolls as they come and turns every full set of batches into updates."""

    def __init__(self, agent: Agent, config: Config) -> None:
        self._agent = agent
        self._config = config
        self._key = seeding.key(config.seed, "learn")
        self._state: LearnerState = jax.jit(agent.init)(seeding.key(config.seed, "init"))
        self._update = _jit_updates(agent)
        self._pending: list[Unroll] = []
        self._calls = 0
        self.metrics: dict[str, Any] = {}  # of the last update

    @property
    def params(self) -> Params:
        """What actors need, as of the last update."""
        return self._agent.acting_params(self._state)

    @property
    def updates(self) -> int:
        """Updates made."""
        return self._calls * self._config.updates_per_call

    def measured(self) -> dict[str, float]:
        """The metrics of the last update. Raises `DivergedError` if one of them is no number any more."""
        measured = {name: float(value) for name, value in self.metrics.items()}
        for name, value in measured.items():
            if not math.isfinite(value):
                raise DivergedError(
                    f"{name} is {value} after {self.updates:,} updates, so the agent is lost: train again with a "
                    "smaller --learning_rate, or with rewards of the size of 1"
                )
        return measured

    def add(self, unrolls: Unroll) -> None:
        """Queues unrolls [n, T+1, ...]."""
        self._pending.append(unrolls)

    def learn(self) -> None:
        """Starts all updates that the queue has unrolls for. Does not wait for them to finish."""
        batch, calls = self._config.batch_size, self._config.updates_per_call
        if sum(len(u.reward) for u in self._pending) < batch * calls:
            return
        queue = concatenate(self._pending)
        while len(queue.reward) >= batch * calls:
            chunk = queue.map(lambda leaf: leaf[: batch * calls].reshape(calls, batch, *leaf.shape[1:]))
            queue = queue.map(lambda leaf: leaf[batch * calls :])
            self._state, self.metrics = self._update(self._state, self._key, np.uint32(self._calls), chunk)
            self._calls += 1
        self._pending = [queue] if len(queue.reward) else []

    def get_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values that a checkpoint needs."""
        arrays = {f"state/{name}": leaf for name, leaf in checkpoint.flatten(self._state).items()}
        if self._pending:
            arrays |= {f"pending/{name}": leaf for name, leaf in concatenate(self._pending).named().items()}
        return arrays, {"calls": self._calls, "metrics": self.measured()}

    def set_state(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """The inverse of `get_state`."""
        groups: dict[str, dict[str, np.ndarray]] = {"state": {}, "pending": {}}
        for name, leaf in arrays.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = leaf
        self._state = checkpoint.unflatten(self._state, groups["state"])
        self._pending = [Unroll.from_named(groups["pending"])] if groups["pending"] else []
        self._calls = meta["calls"]
        self.metrics = meta["metrics"]


def _jit_updates(agent: Agent) -> Any:
    """`agent.update` over a leading axis of batches, compiled as one loop; metrics are those of the last update."""

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: LearnerState, key: jax.Array, call: np.uint32, batches: Unroll) -> tuple[LearnerState, Metrics]:
        keys = jax.random.split(jax.random.fold_in(key, call), len(batches.reward))

        def one(state: LearnerState, inputs: tuple[jax.Array, Unroll]) -> tuple[LearnerState, Metrics]:
            return agent.update(state, *inputs)

        state, metrics = jax.lax.scan(one, state, (keys, batches))
        return state, jax.tree.map(lambda m: m[-1], metrics)

    return update
