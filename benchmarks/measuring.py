"""What the benchmarks of speed share: the clock, what is timed with it, and tidy files."""

import csv
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from aql import agents, envs
from aql.agents.base import Agent, EnvSpec
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.experience import Unroll
from aql.runtime.actor import Actor, jit_act
from aql.runtime.learner import Learner


def seconds_per_call(*functions: Callable[[], Any], budget: float = 1.5) -> list[float]:
    """The median of each function over many calls after a warm-up.

    They take turns, so that whatever else the machine does falls on all of them, and their ratios hold. The budget is
    of seconds for each.
    """
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + budget * len(functions)
    while time.perf_counter() < end or len(times[0]) < 5:
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in times]


def decide(config: Config, spec: EnvSpec) -> Callable[[], None]:
    """One decision for each actor."""
    agent = agents.make(config, spec)
    act = jit_act(agent)
    params = agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0)))
    actor_state = agent.init_actors(np.arange(config.actors), config.actors)
    now, key = random_step(spec, config.actors, np.random.default_rng(0)), jax.random.PRNGKey(1)

    def call() -> None:
        decision, _ = act(params, actor_state, key, np.uint32(0), now, mode="explore")
        jax.block_until_ready(decision)

    return call


def random_step(spec: EnvSpec, num_envs: int, rng: np.random.Generator) -> TimeStep:
    """What environments of this kind might show in the middle of an episode."""
    observation = rng.normal(size=(num_envs, *spec.observation_shape)).astype(np.float32)
    reward, no = rng.uniform(size=num_envs).astype(np.float32), np.zeros(num_envs, bool)
    return TimeStep(observation, reward, np.ones(num_envs, np.float32), no, no, no_masks(num_envs))


def random_unrolls(agent: Agent, config: Config, spec: EnvSpec, count: int) -> Unroll:
    """[count, T+1] unrolls of random steps; what was decided in them has the right shapes, and is zero."""
    key, rng = jax.random.PRNGKey(0), np.random.default_rng(0)
    params = jax.eval_shape(lambda key: agent.acting_params(agent.init(key)), key)
    actor_state = agent.init_actors(np.arange(count), count)
    steps = []
    for _ in range(config.unroll_length + 1):
        now = random_step(spec, count, rng)
        decision, _ = jax.eval_shape(functools.partial(agent.act, mode="explore"), params, actor_state, key, now)
        action, extras = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), decision)
        steps.append(Unroll(now.observation, action, now.reward, now.discount, now.first, now.mask, extras).named())
    return Unroll.from_named({name: np.stack([step[name] for step in steps], axis=1) for name in steps[0]})


def update(config: Config, spec: EnvSpec) -> Callable[[], None]:
    """`config.updates_per_call` updates."""
    agent = agents.make(config, spec)
    learner = Learner(agent, config)
    unrolls = random_unrolls(agent, config, spec, config.batch_size * config.updates_per_call)

    def call() -> None:
        learner.add(unrolls)
        learner.learn()
        jax.block_until_ready(learner.params)

    return call


def step_and_collect(config: Config) -> tuple[float, float]:
    """Seconds of one environment step with actions that cost nothing, and with search and replay around it."""
    bare = envs.make(config.env, config.actors)
    collecting = envs.make_for(config, config.actors)
    bare.reset(0)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (64, config.actors, bare.action_space.dimensions)).astype(np.float32)
    turn = iter(range(10**9))
    agent = agents.make(config, EnvSpec.of(collecting))
    params = agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0)))
    actor = Actor(agent, collecting, config)

    def step() -> None:
        bare.send(actions[next(turn) % 64])
        bare.receive()

    def collect() -> None:
        actor.send(params)
        actor.receive()

    alone, together = seconds_per_call(step, collect)
    bare.close()
    collecting.close()
    return alone / config.actors, together / config.actors / config.action_repeat


def one_core(core: int) -> None:
    """Keeps this process to one core. Before JAX starts, which asks only once."""
    os.environ["PJRT_NPROC"] = "1"
    os.sched_setaffinity(0, {core})


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """All rows at once, so that a reader never sees half of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)
