"""How fast decisions are made: one run, figures as ratios, so that a shared machine does not matter much.

    python benchmarks/search_speed.py [--output benchmarks/results/search_speed.csv]

For 1, 6, 21 and 56 sub-actions, the time of a decision (N = 32 proposal + M = 32 uniform candidates, twin critics of
256-256, the preset `fast`; and the paper's N = 100, M = 400) against

- one big batched evaluation of the same candidates instead of cache-sized blocks,
- exact enumeration, where it can be,
- a bare EnvPool step with random actions,

and collecting (search + physics + replay) against bare EnvPool stepping.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aql import agents, compile_cache, envs
from aql.agents.base import EnvSpec
from aql.config import Config, preset
from aql.runs import commit
from aql.runtime.actor import Actor, jit_act
from aql.search import blocks

TASKS = {
    1: "control/cartpole-swingup",
    6: "control/walker-walk",
    21: "control/humanoid-walk",
    56: "control/humanoid_CMU-run",
}


def seconds_per_call(function: Callable[[], Any], budget: float = 1.5) -> float:
    """The median over many calls after a warm-up."""
    function()
    times: list[float] = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def decision_seconds(config: Config, spec: EnvSpec) -> float:
    """Of one decision for one state, in a batch of all actors."""
    agent = agents.make(config, spec)
    act = jit_act(agent)
    params = agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0)))
    actor_state = agent.init_actors(np.arange(config.actors), config.actors)
    observation = np.random.default_rng(0).normal(size=(config.actors, *spec.observation_shape)).astype(np.float32)
    first = np.zeros(config.actors, bool)
    key = jax.random.PRNGKey(1)

    def decide() -> None:
        decision, _ = act(params, actor_state, key, np.uint32(0), observation, first, mode="explore")
        jax.block_until_ready(decision)

    return seconds_per_call(decide) / config.actors


def bare_step_seconds(env_id: str, num_envs: int) -> float:
    """Of one environment step with actions that cost nothing."""
    env = envs.make(env_id, num_envs)
    env.reset(0)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (64, num_envs, env.action_space.dimensions)).astype(np.float32)
    counter = iter(range(10**9))

    def step() -> None:
        env.send(actions[next(counter) % 64])
        env.receive()

    seconds = seconds_per_call(step) / num_envs
    env.close()
    return seconds


def collect_seconds(config: Config) -> float:
    """Of one actor step: search, physics and replay."""
    env = envs.make(config.env, config.actors)
    agent = agents.make(config, EnvSpec.of(env))
    params = agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0)))
    actor = Actor(agent, env, config)

    def step() -> None:
        actor.send(params)
        actor.receive()

    seconds = seconds_per_call(step) / config.actors
    env.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    compile_cache.enable()
    rows: list[dict[str, Any]] = []

    def note(task: str, dimensions: int, setting: str, quantity: str, microseconds: float, ratio: float) -> None:
        row = {"task": task, "sub_actions": dimensions, "setting": setting, "quantity": quantity}
        rows.append(row | {"microseconds": round(microseconds, 1), "ratio": round(ratio, 3), "commit": commit()})
        print(f"{task:27} {dimensions:3}  {setting:18} {quantity:34} {microseconds:9.1f} us  x {ratio:.2f}", flush=True)

    for dimensions, task in TASKS.items():
        env = envs.make(task, 1)
        spec = EnvSpec.of(env)
        for name, actors in (("fast", 8), ("fast", 32), ("paper", 100)):
            config = preset(name, env=task, actors=actors, random_steps=0, replayed_per_new=0, enumerate_small=False)
            setting = f"{name}, {actors} actors"
            decision = decision_seconds(config, spec)
            note(task, dimensions, setting, "decision", 1e6 * decision, 1)
            block, blocks.BLOCK_FLOATS = blocks.BLOCK_FLOATS, 10**12
            whole = decision_seconds(config, spec)
            blocks.BLOCK_FLOATS = block
            note(task, dimensions, setting, "decision, one big batch", 1e6 * whole, whole / decision)
            size = config.bins**dimensions
            if size <= 20_000:
                every = decision_seconds(preset(name, env=task, agent="exact", actors=actors), spec)
                note(task, dimensions, setting, f"decision, exact ({size:,} actions)", 1e6 * every, every / decision)
            if name == "fast":
                bare = bare_step_seconds(task, actors)
                note(task, dimensions, setting, "bare EnvPool step", 1e6 * bare, bare / decision)
                collect = collect_seconds(config)
                note(task, dimensions, setting, "collecting: share of bare speed", 1e6 * collect, bare / collect)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        with arguments.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
