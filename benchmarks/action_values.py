"""Is Q right about what actions are worth? The truth, by simulation, beside what a trained agent says.

    python benchmarks/action_values.py RUN [--states 16] [--actions 12] [--repeats 4] [--steps 160]

In states that the greedy policy of a run on a control task comes by, a* and actions that differ from it in one
sub-action are done, and then the policy goes on for some steps: the discounted return of that is what they are worth.
Each is done several times from states that differ by a thousandth, since contacts are chaotic: what differs between
repeats is noise, what remains between actions is the truth.

- `Q's spread` and `true spread`: the deviation between actions of a state. If Q's is far smaller, Q cannot see what
  matters; if it is larger, it tells actions apart that are equal.
- `slope`: how much an action is better for each point that Q says it is. 1 is right, 0 is noise.
- `best - a*`: what the best action would gain over a*, chosen by one half of the repeats, judged by the other.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
from dm_control import suite

from aql import compile_cache, runs
from aql.agents.critic import scale
from aql.agents.q_learning import QLearning
from aql.envs.base import TimeStep, no_masks
from aql.errors import UserError


class Simulator:
    """A control task that can be put into any of its states, and the agent's way to act in it."""

    def __init__(self, restored: runs.Restored) -> None:
        assert isinstance(restored.agent, QLearning)
        self._config, self._agent, self._params = restored.config, restored.agent, restored.params
        domain, _, task = restored.config.env.removeprefix("control/").rpartition("-")
        self._env = suite.load(domain, task, task_kwargs={"random": 0})
        self._env.reset()
        self._act = jax.jit(self._best)
        self._values = jax.jit(self._score)

    @property
    def state(self) -> np.ndarray:
        """Of the physics."""
        return np.array(self._env.physics.get_state())

    @state.setter
    def state(self, state: np.ndarray) -> None:
        with self._env.physics.reset_context():
            self._env.physics.set_state(state)

    def see(self) -> np.ndarray:
        """The observation, flat."""
        parts = self._env.task.get_observation(self._env.physics).values()
        return np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)

    def do(self, action: np.ndarray) -> float:
        """The reward of holding an action in [-1, 1] for as long as the agent does."""
        spec, physics, task, reward = self._env.action_spec(), self._env.physics, self._env.task, 0.0
        for _ in range(self._config.action_repeat):
            task.before_step(spec.minimum + (action + 1) / 2 * (spec.maximum - spec.minimum), physics)
            physics.step(self._env._n_sub_steps)
            task.after_step(physics)
            reward += task.get_reward(physics)
        return reward

    def decide(self, seen: np.ndarray, time: int) -> np.ndarray:
        """a* [B, D] of observations [B, ...]."""
        return np.asarray(self._act(seen, jax.random.key(time)))

    def values(self, seen: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Q [B, C] of actions [B, C, D]."""
        return np.asarray(self._values(seen, actions))

    def _best(self, seen: jax.Array, key: jax.Array) -> jax.Array:
        return self._agent.act(self._params, self._actors(seen), key, _now(seen), "greedy")[0].action

    def _score(self, seen: jax.Array, actions: jax.Array) -> jax.Array:
        actors = self._actors(seen)
        network = self._agent._steady(self._params, actors).network
        embedding, _ = self._agent._embedding.act(network.torso, self._params.statistics, _now(seen), actors.memory)
        return scale(self._config).expand(self._agent._evaluate(network.critics, embedding).score(actions))

    def _actors(self, seen: jax.Array) -> Any:
        return self._agent.init_actors(np.zeros(len(seen), int), self._config.actors)


def _now(seen: Any) -> TimeStep:
    zeros = np.zeros(len(seen), np.float32)
    return TimeStep(seen, zeros, zeros + 1, zeros > 0, zeros > 0, no_masks(len(seen)))


def visited(simulator: Simulator, count: int, rng: np.random.Generator, decisions: int) -> tuple[np.ndarray, ...]:
    """States and observations of a greedy episode, at `count` random times after its beginning."""
    times = set(rng.choice(np.arange(decisions // 5, decisions), count, replace=False).tolist())
    states, seen = [], []
    for time in range(decisions):
        now = simulator.see()
        if time in times:
            states.append(simulator.state)
            seen.append(now)
        simulator.do(simulator.decide(now[None], time)[0])
    return np.stack(states), np.stack(seen)


def one_changed(best: np.ndarray, count: int, bins: int, rng: np.random.Generator) -> np.ndarray:
    """[B, D] -> [B, 1 + count, D]: each action, and as many that differ from it in one sub-action."""
    actions = np.repeat(best[:, None], 1 + count, axis=1)
    for state, place in np.ndindex(len(best), count):
        d = rng.integers(best.shape[1])
        others = [v for v in np.linspace(-1, 1, bins) if abs(v - best[state, d]) > 1e-3]
        actions[state, 1 + place, d] = rng.choice(others)
    return actions


def returns(
    simulator: Simulator, states: np.ndarray, actions: np.ndarray, repeats: int, decisions: int, gamma: float
) -> np.ndarray:
    """[B, C, repeats] discounted returns of doing the actions [B, C, D] in nearly the states, and a* from then on."""
    rng = np.random.default_rng(1)
    earned, reached = [], []
    for state, some in zip(states, actions, strict=True):
        starts = state + 1e-3 * rng.normal(size=(repeats, len(state)))  # the same ones for every action
        for action in some:
            for start in starts:
                simulator.state = start
                earned.append(simulator.do(action))
                reached.append(simulator.state)
    total = np.array(earned)
    for decision in range(1, decisions):
        seen = []
        for state in reached:
            simulator.state = state
            seen.append(simulator.see())
        best = simulator.decide(np.stack(seen), decision)
        for i, state in enumerate(reached):
            simulator.state = state
            total[i] += gamma**decision * simulator.do(best[i])
            reached[i] = simulator.state
    return total.reshape(*actions.shape[:2], repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--actions", type=int, default=12, help="beside a*")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--steps", type=int, default=160, help="of the environment, after which nothing counts")
    options = parser.parse_args()
    if options.repeats < 2:
        raise UserError(f"--repeats is {options.repeats}: expected at least 2, to tell truth from noise")
    compile_cache.enable()
    restored = runs.restore(options.run)
    repeat = restored.config.action_repeat
    simulator, rng = Simulator(restored), np.random.default_rng(0)
    states, seen = visited(simulator, options.states, rng, 1000 // repeat)
    actions = one_changed(simulator.decide(seen, 0), options.actions, restored.config.bins, rng)
    said = simulator.values(seen, actions)
    true = returns(simulator, states, actions, options.repeats, options.steps // repeat, restored.config.gamma)

    mean, noise = true.mean(axis=2), true.var(axis=2, ddof=1).mean()
    spread = max(0.0, float(mean.var(axis=1, ddof=1).mean() - noise / options.repeats)) ** 0.5
    centred_q, centred = said - said.mean(axis=1, keepdims=True), mean - mean.mean(axis=1, keepdims=True)
    half = options.repeats // 2
    chosen = true[:, :, :half].mean(axis=2).argmax(axis=1)
    gains = true[np.arange(len(true)), chosen, half:].mean(axis=1) - true[:, 0, half:].mean(axis=1)
    print(
        f"{restored.config.env}, {restored.actor_steps:,} steps, {len(true)} states, {len(actions[0])} actions in each"
    )
    print(f"Q's spread   {centred_q.std(ddof=1):6.2f}")
    print(f"true spread  {spread:6.2f}   (noise of one simulation {noise**0.5:.2f})")
    print(f"slope        {(centred_q * centred).sum() / np.square(centred_q).sum():6.2f}")
    print(f"best - a*    {gains.mean():6.2f}   (deviation of the mean {gains.std(ddof=1) / len(gains) ** 0.5:.2f})")


if __name__ == "__main__":
    main()
