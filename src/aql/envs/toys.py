"""Toy problems with known answers, natively vectorised: fast enough for learning tests."""

import functools
from collections.abc import Callable, Mapping

import numpy as np

from aql.actions import ActionSpace, Discrete, Interval
from aql.envs import ids
from aql.envs.base import TimeStep, VectorEnv, no_masks
from aql.envs.observations import Observations
from aql.envs.serial import RenderedEnv
from aql.errors import UserError, unknown


class Toy:
    """The bookkeeping of episodes. A toy says how episodes start, what a step does and what is seen."""

    def __init__(self, num_envs: int, action_space: ActionSpace, observation_length: int) -> None:
        self.num_envs = num_envs
        self.action_space = action_space
        self.observations = Observations((observation_length,))
        self._rng = np.random.default_rng(0)
        self._steps = np.zeros(num_envs, int)
        self._last = np.ones(num_envs, bool)
        self._action: np.ndarray | None = None

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments, as a function of the seed alone if there is one."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self._clear()
        self._last = np.ones(self.num_envs, bool)
        self.send(np.zeros((self.num_envs, self.action_space.dimensions), np.float32))
        return self.receive()

    def send(self, action: np.ndarray) -> None:
        """Notes the actions [B, D]; the work is done in `receive`."""
        self._action = np.array(action)

    def receive(self) -> TimeStep:
        """Steps every environment; one whose episode is over starts the next."""
        assert self._action is not None, "receive without send"
        first = self._last
        self._steps = np.where(first, 0, self._steps + 1)
        reward, terminated, truncated = self._advance(self._action, first)
        self._start(first)
        self._action = None
        self._last = ~first & (terminated | truncated)
        return TimeStep(
            self._observe(),
            np.where(first, 0, reward).astype(np.float32),
            np.where(terminated & ~first, 0, 1).astype(np.float32),
            first,
            self._last.copy(),
            no_masks(self.num_envs),
        )

    def close(self) -> None:
        """There is nothing to free."""

    def _clear(self) -> None:
        """Forgets what outlives an episode."""

    def _start(self, where: np.ndarray) -> None:
        """Begins the episodes of some environments, [B] bool."""

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes the actions [B, D] where not `first`; gives reward, terminated, truncated, each [B]."""
        raise NotImplementedError

    def _observe(self) -> np.ndarray:
        """[B, n] float32 that own their memory."""
        raise NotImplementedError


class Counting(Toy):
    """Sees (steps since the start, episode, environment) and earns the step's number, up to a time limit.

    Every number tells where it belongs, so that a test can prove that unrolls are aligned and overlap.
    """

    def __init__(self, num_envs: int, length: int = 7) -> None:
        super().__init__(num_envs, ActionSpace((Discrete(2),)), 3)
        self._length = length
        self._clear()

    def _clear(self) -> None:
        self._episode = np.full(self.num_envs, -1)

    def _start(self, where: np.ndarray) -> None:
        self._episode = self._episode + where

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._steps, np.zeros(self.num_envs, bool), self._steps >= self._length

    def _observe(self) -> np.ndarray:
        return np.stack([self._steps, self._episode, np.arange(self.num_envs)], axis=1).astype(np.float32)


class Bandit(Toy):
    """A context x ~ N(0, I), one action, a reward in [0, 1] that is 1 at one known action only.

    The best value of sub-action d is t_d = tanh(w_d x) in [-1, 1], rounded to a choice if it is finite.
    With the closeness c_d = exp(-(distance to t_d / width)^2),

        reward = (mean_d c_d + prod_d c_d) / 2:

    half of it has a slope for every sub-action alone, the other half is earned only by all of them together.
    """

    optimal_value = 1.0
    context_length = 4

    def __init__(self, num_envs: int, action_space: ActionSpace, width: float = 0.25) -> None:
        super().__init__(num_envs, action_space, self.context_length)
        self._width = width
        # The problem is a constant: the seed of `reset` draws contexts, not another problem.
        weights = np.random.default_rng(20).normal(size=(self.context_length, action_space.dimensions))
        self._weights = weights / np.linalg.norm(weights, axis=0)
        self._context = np.zeros((num_envs, self.context_length), np.float32)

    def optimal_action(self, observation: np.ndarray) -> np.ndarray:
        """[B, n] contexts -> [B, D] the best actions."""
        target = np.tanh(observation.astype(np.float64) @ self._weights)
        n = self.action_space.num_choices
        choice = np.clip(np.floor((target + 1) / 2 * n), 0, np.maximum(n - 1, 0))
        return np.where(n > 0, choice, target).astype(np.float32)

    def expected_reward(self, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
        """[B] the reward of actions [B, D] in contexts [B, n]."""
        # The choices of a finite set lie equally spaced on [-1, 1], as the values of an interval do.
        spacing = 2 / np.maximum(self.action_space.num_choices - 1, 1)
        scale = np.where(self.action_space.num_choices > 0, spacing, 1)
        distance = scale * (action.astype(np.float64) - self.optimal_action(observation))
        closeness = np.exp(-np.square(distance / self._width))
        return (closeness.mean(axis=1) + closeness.prod(axis=1)) / 2

    def _start(self, where: np.ndarray) -> None:
        fresh = self._rng.normal(size=self._context.shape).astype(np.float32)
        self._context = np.where(where[:, None], fresh, self._context)

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        over = np.ones(self.num_envs, bool)
        return self.expected_reward(self._context, action), over, ~over

    def _observe(self) -> np.ndarray:
        return self._context.copy()


class Chain(Toy):
    """States 0..N-1 in a row, seen one-hot; actions: 0 goes left, 1 goes right.

    Arriving at the far end earns 1 and terminates. Going left at the start earns `bait`: the greedy trap.
    A time limit ends what never arrives.
    """

    def __init__(self, num_envs: int, length: int = 8, bait: float = 0.01, limit: int = 100) -> None:
        super().__init__(num_envs, ActionSpace((Discrete(2),)), length)
        self._length, self._bait, self._limit = length, bait, limit
        self._state = np.zeros(num_envs, int)

    def optimal_q(self, gamma: float) -> np.ndarray:
        """[N, 2] Q* of (left, right) by value iteration; the far end is terminal and worth 0."""
        state = np.arange(self._length)
        q = np.zeros((self._length, 2))
        while True:
            value = q.max(axis=1)
            left = self._bait * (state == 0) + gamma * value[np.maximum(state - 1, 0)]
            right = np.where(state == self._length - 2, 1, gamma * value[np.minimum(state + 1, self._length - 1)])
            new_q = np.stack([left, right], axis=1)
            new_q[-1] = 0
            if np.abs(new_q - q).max() < 1e-12:
                return new_q
            q = new_q

    def _start(self, where: np.ndarray) -> None:
        self._state = np.where(where, 0, self._state)

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        right = np.rint(action[:, 0]).astype(int) == 1
        bait = self._bait * (~right & (self._state == 0))
        self._state = np.clip(self._state + np.where(right, 1, -1), 0, self._length - 1)
        arrived = self._state == self._length - 1
        return bait + arrived, arrived, self._steps >= self._limit

    def _observe(self) -> np.ndarray:
        return np.eye(self._length, dtype=np.float32)[self._state]


class TimeLimit(Toy):
    """A constant observation and reward 1, cut by a time limit: the value is 1 / (1 - gamma) all the same."""

    def __init__(self, num_envs: int, length: int = 10) -> None:
        super().__init__(num_envs, ActionSpace((Discrete(2),)), 1)
        self._length = length

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.ones(self.num_envs), np.zeros(self.num_envs, bool), self._steps >= self._length

    def _observe(self) -> np.ndarray:
        return np.ones((self.num_envs, 1), np.float32)


class Termination(Toy):
    """Reward 1 and a true end after k steps: the value after t is (1 - gamma^(k - t)) / (1 - gamma).

    The observation is t / k, without which the state would not be Markov.
    """

    def __init__(self, num_envs: int, length: int = 10) -> None:
        super().__init__(num_envs, ActionSpace((Discrete(2),)), 1)
        self._length = length

    def optimal_value(self, observation: np.ndarray, gamma: float) -> np.ndarray:
        """[B] the values of observations [B, 1], whatever the policy."""
        left = self._length - np.rint(observation[:, 0] * self._length)
        return (1 - gamma**left) / (1 - gamma)

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.ones(self.num_envs), self._steps >= self._length, np.zeros(self.num_envs, bool)

    def _observe(self) -> np.ndarray:
        return (self._steps / self._length).astype(np.float32)[:, None]


class Recall(Toy):
    """A cue of two at the start, nothing for a while, then the question which it was: 1 for the right answer.

    Without a memory there is nothing better than 1/2.
    """

    def __init__(self, num_envs: int, delay: int = 4) -> None:
        super().__init__(num_envs, ActionSpace((Discrete(2),)), 3)
        self._delay = delay
        self._cue = np.zeros(num_envs, int)

    def _start(self, where: np.ndarray) -> None:
        self._cue = np.where(where, self._rng.integers(0, 2, self.num_envs), self._cue)

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        answered = self._steps > self._delay
        return answered * (np.rint(action[:, 0]) == self._cue), answered, np.zeros(self.num_envs, bool)

    def _observe(self) -> np.ndarray:
        shown = np.where((self._steps == 0)[:, None], np.eye(2)[self._cue], 0)
        return np.concatenate([shown, (self._steps == self._delay)[:, None]], axis=1).astype(np.float32)


class Spot(Toy):
    """A picture with a bright spot in one of its four quarters: 1 for saying in which."""

    def __init__(self, num_envs: int, side: int = 12) -> None:
        super().__init__(num_envs, ActionSpace((Discrete(2), Discrete(2))), 0)
        self.observations = Observations((side, side, 3), np.dtype(np.uint8))
        self._place = np.zeros((num_envs, 2), int)

    def _start(self, where: np.ndarray) -> None:
        places = self._rng.integers(0, self.observations.shape[0], (self.num_envs, 2))
        self._place = np.where(where[:, None], places, self._place)

    def _advance(self, action: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        right = np.all(np.rint(action) == (self._place >= self.observations.shape[0] // 2), axis=1)
        return right, np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)

    def _observe(self) -> np.ndarray:
        picture = np.full((self.num_envs, *self.observations.shape), 40, np.uint8)
        picture[np.arange(self.num_envs), self._place[:, 0], self._place[:, 1]] = 255
        return picture


def _bandit(*subactions: Discrete | Interval) -> Callable[[int], VectorEnv]:
    return functools.partial(Bandit, action_space=ActionSpace(subactions))


TOYS: Mapping[str, Callable[[int], VectorEnv]] = {
    "toy/counting": Counting,
    "toy/bandit-discrete": _bandit(*[Discrete(4)] * 3),
    "toy/bandit-continuous": _bandit(*[Interval(-1, 1)] * 2),
    "toy/bandit-hybrid": _bandit(Discrete(4), Interval(-1, 1), Interval(-2, 2)),
    "toy/bandit-million": _bandit(*[Discrete(10)] * 6),
    "toy/chain": Chain,
    "toy/time-limit": TimeLimit,
    "toy/termination": Termination,
    "toy/recall": Recall,
    "toy/spot": Spot,
}


def make(env_id: str, num_envs: int, num_threads: int | None = None) -> VectorEnv:
    """The vector for `toy/<name>`, which needs no threads."""
    del num_threads
    ids.refuse_options(env_id)
    if env_id not in TOYS:
        raise unknown("environment", env_id, TOYS, "`aql envs` lists them all")
    return TOYS[env_id](num_envs)


def make_rendered(env_id: str) -> RenderedEnv:
    """There is nothing to film."""
    raise UserError(f"{env_id} has no picture: film a control task or a Gymnasium environment")
