"""Per-actor FIFO replay: every step is stored once, unrolls are windows cut out of the ring when they are needed."""

from collections.abc import Mapping

import numpy as np

from aql.experience import Unroll


class Replay:
    """One ring of steps for each of B actors that step together, so that all rings share one position.

    Unrolls are windows of T+1 steps, from anywhere, or `aligned` at multiples of T, exactly as they were first sent.
    """

    def __init__(self, num_actors: int, capacity: int, unroll_length: int, aligned: bool) -> None:
        self._num_actors = num_actors
        self._capacity = capacity
        self._unroll_length = unroll_length
        self._aligned = aligned
        self._ring: Unroll | None = None  # leaves [capacity, B, ...], made by the first step
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps of each actor that were stored, those that had to go since included."""
        return self._steps

    def __len__(self) -> int:
        """Steps held for each actor."""
        return min(self._steps, self._capacity)

    def add(self, step: Unroll) -> None:
        """Stores one step of every actor; leaves [B, ...]."""
        if self._ring is None:
            self._ring = step.map(lambda leaf: np.zeros((self._capacity, *leaf.shape), leaf.dtype))
        row, leaves = self._steps % self._capacity, step.named()
        for name, ring in self._ring.named().items():
            ring[row] = leaves[name]
        self._steps += 1

    def newest(self) -> Unroll | None:
        """The unrolls [B, T+1, ...] that the last step completed, if it did."""
        start = self._steps - 1 - self._unroll_length
        if start < 0 or start % self._unroll_length != 0:
            return None
        return self._windows(np.full((self._num_actors, 1), start))

    def sample(self, rng: np.random.Generator, per_actor: int) -> Unroll:
        """`per_actor` unrolls of each actor [B * per_actor, T+1, ...], uniformly with replacement."""
        stride = self._unroll_length if self._aligned else 1
        oldest = -(-(self._steps - len(self)) // stride)
        newest = (self._steps - 1 - self._unroll_length) // stride
        if newest < oldest:
            raise ValueError(f"replay holds {len(self)} steps: an unroll needs {self._unroll_length + 1}")
        starts = stride * rng.integers(oldest, newest + 1, (self._num_actors, per_actor))
        return self._windows(starts)

    def _windows(self, starts: np.ndarray) -> Unroll:
        """Windows that begin at the steps [B, n]."""
        assert self._ring is not None
        actors = np.repeat(np.arange(self._num_actors), starts.shape[1])[:, None]
        rows = (starts.reshape(-1, 1) + np.arange(self._unroll_length + 1)) % self._capacity
        return self._ring.map(lambda ring: ring[rows, actors])

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here; only rows in use."""
        rows = {} if self._ring is None else self._ring.map(lambda leaf: leaf[: len(self)]).named()
        return {"steps": np.array(self._steps), **rows}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """The inverse of `get_state`."""
        self._steps = int(state["steps"])
        self._ring = None
        if self._steps > 0:
            self._ring = Unroll.from_named({name: self._full(leaf) for name, leaf in state.items() if name != "steps"})

    def _full(self, rows: np.ndarray) -> np.ndarray:
        ring = np.zeros((self._capacity, *rows.shape[1:]), rows.dtype)
        ring[: len(rows)] = rows
        return ring
