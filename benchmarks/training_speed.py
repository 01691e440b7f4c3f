"""Where the time of training goes, and how far each part is from its limit: one run, figures as ratios.

    python benchmarks/training_speed.py [--output benchmarks/results/training_speed.csv] [--seconds 10] [--core 0]

With the preset `fast`, on one core, for walker-walk, cheetah-run and humanoid-stand:

- environment steps a second in training, and what a step spends on acting, physics, replay and updating;
- bare EnvPool stepping, and collecting (search, physics, replay, no learning) as a share of its speed;
- an update against its matrix products alone, forward and backward, in their shapes;
- start-up: from a fresh process to its first step, with compiled functions on disk from the process before.
"""

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from measuring import one_core, random_unrolls, seconds_per_call, step_and_collect, update, write_csv

from aql import agents, compile_cache, envs
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.envs.base import TimeStep
from aql.envs.wrappers import Wrapper
from aql.presets import preset
from aql.runs import commit
from aql.runtime.local import Trainer

TASKS = ("control/walker-walk", "control/cheetah-run", "control/humanoid-stand")
COLLECTING_GOAL = {"control/humanoid-stand": 0.5, "control/cheetah-run": 0.25}  # of bare EnvPool's speed
PRODUCTS_GOAL = 2.0  # times that an update may take of its matrix products alone
START_GOAL = 5.0  # seconds


class Row(NamedTuple):
    """A measurement; the ratio is to what the quantity says, the goal is of the ratio, or of the value without one."""

    task: str
    quantity: str
    value: float
    unit: str
    ratio: float | None = None
    goal: str = ""


# Training


class Timed(Wrapper):
    """Keeps the time spent in its environments."""

    seconds = 0.0

    def send(self, action: np.ndarray) -> None:
        start = time.perf_counter()
        super().send(action)
        self.seconds += time.perf_counter() - start

    def receive(self) -> TimeStep:
        start = time.perf_counter()
        step = super().receive()
        self.seconds += time.perf_counter() - start
        return step


def training(config: Config, seconds: float) -> Iterator[Row]:
    """Steps a second as they are in training, and the parts of a step when one waits for the other."""
    env = Timed(envs.make_for(config, config.actors))
    eval_env = envs.make(config.env, 1)
    trainer = Trainer.in_process(config, env, eval_env)
    actor, learner = trainer.actor, trainer.learner
    while learner.updates < 5 * config.updates_per_call:
        trainer.step(_ignore)
    jax.block_until_ready(learner.params)

    began, steps = time.perf_counter(), actor.steps
    while time.perf_counter() < began + seconds:
        trainer.step(_ignore)
    jax.block_until_ready(learner.params)
    yield Row(config.env, "steps in training", (actor.steps - steps) / (time.perf_counter() - began), "1/s")

    parts = dict.fromkeys(("acting", "physics", "replay", "updating"), 0.0)
    began, steps = time.perf_counter(), actor.steps
    while (now := time.perf_counter()) < began + seconds:
        physics = env.seconds
        actor.send(learner.params, learner.updates)
        sent, in_send = time.perf_counter(), env.seconds - physics
        unrolls = actor.receive()
        received, in_receive = time.perf_counter(), env.seconds - physics - in_send
        if unrolls is not None:
            learner.add(unrolls)
        learner.learn()
        jax.block_until_ready(learner.params)
        parts["acting"] += sent - now - in_send
        parts["physics"] += in_send + in_receive
        parts["replay"] += received - sent - in_receive
        parts["updating"] += time.perf_counter() - received
    env.close()
    eval_env.close()
    whole = sum(parts.values())
    for name, taken in parts.items():
        yield Row(config.env, f"{name}: share of a step", 1e6 * taken / (actor.steps - steps), "us", taken / whole)


def _ignore(*_: Any, **__: Any) -> None:
    """Nobody listens to the metrics."""


# Collecting


def collecting(config: Config) -> Iterator[Row]:
    goal = COLLECTING_GOAL.get(config.env)
    for actors in (config.actors, 4 * config.actors):
        of = preset("fast", env=config.env, actors=actors, random_steps=0, replayed_per_new=0)
        bare, collect = step_and_collect(of)
        yield Row(config.env, f"bare EnvPool, {actors} environments", 1 / bare, "1/s")
        share = f"collecting, {actors} actors: share of bare"
        yield Row(config.env, share, 1 / collect, "1/s", bare / collect, f">= {goal}" if goal else "")


# Matrix products


class Product(NamedTuple):
    """A `dot_general`, and how many times it is done."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    dimensions: Any
    times: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each number on the left and each free column on the right."""
        (_, contracted), (_, batch) = self.dimensions
        shared = math.prod(self.right[axis] for axis in (*contracted, *batch))
        return 2 * math.prod(self.left) * (math.prod(self.right) // shared) * self.times


def products(function: Callable[..., Any], *arguments: Any) -> list[Product]:
    """All matrix products that the function's results need."""
    return list(_products(jax.make_jaxpr(function)(*arguments).jaxpr, times=1))


def _products(jaxpr: Any, times: int) -> Iterator[Product]:
    needed = {id(var) for var in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if not any(id(var) in needed for var in equation.outvars):
            continue  # XLA leaves it out, too
        needed |= {id(var) for var in equation.invars}
        if equation.primitive.name == "dot_general":
            left, right = (var.aval.shape for var in equation.invars)
            yield Product(left, right, equation.params["dimension_numbers"], times)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "jaxpr")):
            if hasattr(inner, "jaxpr"):
                yield from _products(inner.jaxpr, times * equation.params.get("length", 1))


def only_products(found: list[Product]) -> Callable[[], None]:
    """Does these products and nothing else.

    What has one shape is one array, warm in the cache, but an argument for each product: XLA cannot know that some are
    the same, and does them all.
    """
    rng = np.random.default_rng(0)
    each = [product for product in found for _ in range(product.times)]
    shapes = {side for product in each for side in (product.left, product.right)}
    arrays = {shape: jax.device_put(rng.normal(size=shape).astype(np.float32)) for shape in shapes}
    pairs = [(arrays[product.left], arrays[product.right]) for product in each]

    @jax.jit
    def multiply(pairs: list[Any]) -> jax.Array:
        """One number of each product: as results they would all need memory of their own, which costs time."""
        numbers = []
        for (left, right), product in zip(pairs, each, strict=True):
            whole = jax.lax.optimization_barrier(jax.lax.dot_general(left, right, product.dimensions))
            numbers.append(whole[(0,) * whole.ndim])
        return jnp.stack(numbers)

    return lambda: jax.block_until_ready(multiply(pairs))


def updating(config: Config) -> Iterator[Row]:
    env = envs.make(config.env, 1)
    spec = EnvSpec.of(env)
    env.close()
    agent = agents.make(config, spec)
    batch = random_unrolls(agent, config, spec, config.batch_size)
    key = jax.random.PRNGKey(0)
    found = products(agent.update, jax.eval_shape(agent.init, key), key, batch)
    calls, alone = seconds_per_call(update(config, spec), only_products(found), budget=4)
    one = calls / config.updates_per_call
    flops = sum(product.flops for product in found)
    yield Row(config.env, "matrix products alone", 1e3 * alone, "ms")
    yield Row(config.env, "speed of the products alone", flops / alone / 1e9, "GFLOP/s")
    yield Row(config.env, "update: against its products", 1e3 * one, "ms", one / alone, f"<= {PRODUCTS_GOAL}")


# Start-up

START = """
import sys
import aql
print("import", flush=True)
model = aql.AQL(sys.argv[1])
model.learn(1, progress=False)
print("first step", flush=True)
model.learn(model.config.random_steps + 100, progress=False)
print("first updates", flush=True)
"""


def starting(task: str, processes: int = 3) -> Iterator[Row]:
    """The median over fresh processes; one before them fills the compile cache."""
    _start(task)
    measured = [_start(task) for _ in range(processes)]
    for name in measured[0]:
        goal = f"<= {START_GOAL}" if name == "first step" else ""
        seconds = float(np.median([times[name] for times in measured]))
        yield Row(task, f"start-up, until: {name}", seconds, "s", goal=goal)


def _start(task: str) -> dict[str, float]:
    """Seconds from the start of a process until it has said each word."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", START, task], stdout=subprocess.PIPE, text=True, close_fds=False)
    assert process.stdout is not None
    times = {line.strip(): time.perf_counter() - began for line in process.stdout}
    if process.wait():
        raise SystemExit(f"start-up of {task} failed: see above")
    return times


PARTS: dict[str, Callable[[str, float], Iterator[Row]]] = {
    "training": lambda task, seconds: training(_config(task), seconds),
    "collecting": lambda task, _: collecting(_config(task)),
    "updating": lambda task, _: updating(_config(task)),
    "starting": lambda task, _: starting(task),
}


def _config(task: str) -> Config:
    """The preset, without evaluations while it is timed."""
    return preset("fast", env=task, eval_every=10**9, log_every=10**9, eval_episodes=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--parts", default=",".join(PARTS), help="some of these")
    parser.add_argument("--seconds", type=float, default=10, help="of training, and of its parts")
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    arguments = parser.parse_args()
    one_core(arguments.core)
    compile_cache.enable()
    rows: list[dict[str, Any]] = []
    print(f"{'task':24} {'quantity':40} {'value':>10} {'':8} {'ratio':>6}  goal")
    for part in arguments.parts.split(","):
        for task in arguments.tasks.split(","):
            for row in PARTS[part](task, arguments.seconds):
                ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
                print(f"{task:24} {row.quantity:40} {row.value:10,.2f} {row.unit:8} {ratio:>6}  {row.goal}", flush=True)
                tidy = {"value": round(row.value, 3), "ratio": None if row.ratio is None else round(row.ratio, 3)}
                rows.append(row._asdict() | tidy | {"commit": commit()})
    if arguments.output:
        write_csv(arguments.output, rows)


if __name__ == "__main__":
    main()
