"""What Ray costs and brings: one run on one machine, and from its figures a cluster of many.

    python benchmarks/cluster_speed.py [--output benchmarks/results/cluster_speed.csv] [--seconds 10] [--presets fast]

- steps per second of training, and of collecting alone, with 1, 2 and 4 workers against one process;
- unrolls per second that the learner can take when acting is free: stub workers deliver the same recorded unrolls
  again and again, so that the number of actors that one learner feeds follows;
- memory of a worker, and the age of the parameters that act (`param_lag`, in updates);
- a simulation of 100 actors on 50 machines from the measured costs: the bottleneck, and the time of 2e8 steps.

Steps per second are by the clock: they need a machine with nothing else to do. The costs that the simulation starts
from are CPU time, one core for the learner and one for each worker, which other work on the machine hardly changes.
"""

import argparse
import heapq
import json
import os
import pickle
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from measuring import write_csv

from aql import agents, compile_cache, envs
from aql.agents.base import EnvSpec, Params
from aql.config import Config
from aql.presets import preset
from aql.runs import commit
from aql.runtime import cluster, local
from aql.runtime.learner import Learner
from aql.runtime.worker import Delivery, Share, Worker, decisions_per_call

TASK = "control/walker-walk"
WORKERS = (1, 2, 4)
MACHINES, ACTORS, STEPS = 50, 100, 2e8
LATENCY = 0.5e-3  # seconds, of the simulated network
GIGABIT = 1e9 / 8  # bytes per second


class Stub(Worker):
    """Acts once and delivers that for ever."""

    def __init__(self, config: Config, share: Share, birth: int) -> None:
        super().__init__(config, share, birth)
        self._recorded: Delivery | None = None

    def act(self, params: Params, version: int) -> Delivery:
        while self._recorded is None or self._recorded.unrolls is None:
            self._recorded = super().act(params, version)
        return self._recorded._replace(version=version)


class Speed(NamedTuple):
    steps: float  # per second
    updates: float  # per second
    calls: float  # per second
    cpu: float  # seconds of this process for each call
    lag: float  # updates
    pss: float  # MB of a worker, shared memory counted in parts
    rss: float  # MB of a worker


KINDS = {"process": local.in_process, "workers": cluster.on_ray(), "stubs": cluster.on_ray(worker_class=Stub)}


def measured(config: Config, kind: str, seconds: float, learn: bool = True) -> Speed:
    """`measure` in a process of its own: Ray forks when it starts, which it had better do before JAX has."""
    order = json.dumps({"config": config.to_json(), "kind": kind, "seconds": seconds, "learn": learn})
    command = [sys.executable, __file__, "--measure", order]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, close_fds=False)
    return Speed(*json.loads(done.stdout.splitlines()[-1]))


def measure(config: Config, kind: str, seconds: float, learn: bool) -> Speed:
    """Trains, or only collects, for some seconds after everything is compiled."""
    acting: local.Acting = KINDS[kind]
    with ExitStack() as stack:
        eval_env = envs.make(config.env, 1)
        stack.callback(eval_env.close)
        agent = agents.make(config, EnvSpec.of(eval_env))
        actor: Any = stack.enter_context(acting(config, agent))
        trainer = local.Trainer(config, agent, actor, eval_env)
        params = trainer.learner.params

        def step() -> None:
            if learn:
                trainer.step(lambda *_, **__: None)
            else:
                actor.send(params, 1)
                actor.receive()

        warm = time.perf_counter() + 3
        while (learn and trainer.learner.updates < 40) or actor.steps < 2000 or time.perf_counter() < warm:
            step()
        jax.block_until_ready(trainer.learner.params)
        began, steps, updates, cpu = time.perf_counter(), actor.steps, trainer.learner.updates, time.process_time()
        while time.perf_counter() < began + seconds:
            step()
        jax.block_until_ready(trainer.learner.params)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        memory = [_memory(pid) for pid in _workers()] or [(0.0, 0.0)]
        rate = (actor.steps - steps) / took
        shares = config.actors / max(config.workers, 1)
        calls = 0.0
        if config.workers:
            decisions = decisions_per_call(config, Share(0, round(shares)))
            calls = rate / (shares * decisions * config.action_repeat)
        lag = actor.metrics().get("param_lag", 0.0)
        pss, rss = np.mean(memory, axis=0)
        update_rate = (trainer.learner.updates - updates) / took
        return Speed(rate, update_rate, calls, cpu / max(calls * took, 1), lag, float(pss), float(rss))


def learner_alone(config: Config, seconds: float) -> float:
    """Updates for a second of CPU time, of a learner in whose process the unrolls lie already."""
    env = envs.make(config.env, 1)
    learner = Learner(agents.make(config, EnvSpec.of(env)), config)
    env.close()
    worker = Stub(config, Share(0, config.actors), 0)  # after the learner: a worker leaves JAX one thread only
    delivery = worker.act(learner.params, 0)

    def learn() -> None:
        learner.add(delivery.unrolls)  # type: ignore[arg-type]
        learner.learn()
        jax.block_until_ready(learner.params)

    while learner.updates < 40:
        learn()
    began, updates = time.process_time(), learner.updates
    while time.process_time() < began + seconds:
        learn()
    return (learner.updates - updates) / (time.process_time() - began)


def acting_alone(config: Config, share: Share, seconds: float) -> tuple[float, int]:
    """Seconds of CPU time of one call of a worker, and the bytes that it delivers."""
    worker = Worker(config, share, 0)
    env = envs.make(config.env, 1)
    agent = agents.make(config, EnvSpec.of(env))
    env.close()
    params = agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0)))
    delivery = worker.act(params, 1)
    while delivery.unrolls is None:
        delivery = worker.act(params, 1)
    calls, began = 0, time.process_time()
    while time.process_time() < began + seconds:
        delivery = worker.act(params, 1)
        calls += 1
    return (time.process_time() - began) / calls, len(pickle.dumps(delivery))


def _workers() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith((b"ray::Worker", b"ray::Stub")):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _memory(pid: int) -> tuple[float, float]:
    """PSS and RSS in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
    return kilobytes["Pss:"] / 1e3, kilobytes["Rss:"] / 1e3


class Simulated(NamedTuple):
    steps: float  # per second
    learner: float  # share of the time that the learner updates
    driver: float  # share that the driver takes results and publishes
    lag: float  # updates


def simulate(
    workers: int,
    call_steps: int,  # that a call delivers
    call_seconds: float,  # of acting
    call_bytes: int,
    call_updates: float,  # that a call pays for
    update_seconds: float,
    take_seconds: float,  # of the driver for each result
    params_bytes: int,
    bandwidth: float,  # bytes per second
    calls: int = 20_000,
) -> Simulated:
    """The rhythm of `Trainer.step` with workers elsewhere: take all that has arrived, update, publish, ask for more.

    A worker has two calls: one runs while the other waits. The learner's network link is shared by all that comes
    in and, in the other direction, by one copy of the parameters for each machine.
    """
    transfer = call_bytes / bandwidth
    arrivals: list[tuple[float, int, float]] = []  # when, who, the version that acted
    ready_at = np.zeros(workers)  # when each worker can begin its next call
    link_free = 0.0

    def ask(worker: int, now: float, version: float) -> None:
        begin = max(now + LATENCY, ready_at[worker])
        ready_at[worker] = begin + call_seconds
        heapq.heappush(arrivals, (ready_at[worker] + LATENCY + transfer, worker, version))

    for worker in range(workers):
        for _ in range(cluster.CALLS_IN_FLIGHT):
            ask(worker, 0.0, 0.0)
    now = updating = taking = version = lags = 0.0
    taken = 0
    while taken < calls:
        now = max(now, arrivals[0][0])
        batch = []
        while arrivals and arrivals[0][0] <= now:
            batch.append(heapq.heappop(arrivals))
        link_free = max(link_free, now) + len(batch) * transfer
        cost = max(len(batch) * take_seconds, link_free - now)
        lags += sum(version - acted for _, _, acted in batch)
        learning = len(batch) * call_updates * update_seconds
        publishing = min(len(batch), MACHINES) * params_bytes / bandwidth
        now += max(learning, publishing) + cost
        version += len(batch) * call_updates
        updating, taking, taken = updating + learning, taking + cost, taken + len(batch)
        for _, worker, _ in batch:
            ask(worker, now, version)
    return Simulated(taken * call_steps / now, updating / now, taking / now, lags / taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement, after its warm-up")
    parser.add_argument("--presets", default="fast,paper")
    parser.add_argument("--parts", default="training,collecting,learner", help="what to measure")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    compile_cache.enable()
    if arguments.measure:
        order = json.loads(arguments.measure)
        print(json.dumps(measure(Config.from_json(order.pop("config")), **order)))
        return
    presets, parts = arguments.presets.split(","), arguments.parts.split(",")
    cores = len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []

    def note(setting: str, quantity: str, value: float, unit: str, ratio: float | None = None) -> None:
        row = {"task": TASK, "setting": setting, "quantity": quantity, "value": float(f"{value:.4g}"), "unit": unit}
        rows.append(row | {"ratio": "" if ratio is None else round(ratio, 3), "cores": cores, "commit": commit()})
        beside = "" if ratio is None else f"  x {ratio:.2f}"
        print(f"{setting:22} {quantity:48} {value:12.5g} {unit}{beside}", flush=True)

    for name in presets:
        settings = {"env": TASK, "actors": 8, "random_steps": 0}
        setting = f"{name}, 8 actors"
        for what in ("training", "collecting"):
            if what not in parts:
                continue
            learn = what == "training"
            single = measured(preset(name, **settings), "process", arguments.seconds, learn)
            note(setting, f"{what}, one process", single.steps, "steps/s", 1.0)
            for workers in WORKERS:
                config = preset(name, **settings, workers=workers)
                speed = measured(config, "workers", arguments.seconds, learn)
                note(setting, f"{what}, {workers} workers", speed.steps, "steps/s", speed.steps / single.steps)
                if learn:
                    note(setting, f"parameter lag, {workers} workers", speed.lag, "updates")
                    note(setting, f"memory of each of {workers} workers, PSS", speed.pss, "MB")
                    note(setting, f"memory of each of {workers} workers, RSS", speed.rss, "MB")

    for name in presets if "learner" in parts else ():
        config = preset(name, env=TASK, actors=ACTORS, random_steps=0, replay_capacity=3000, workers=MACHINES)
        share = Share(0, ACTORS // MACHINES)
        setting = f"{name}, {ACTORS} actors"
        per_decision = (1 + config.replayed_per_new) / config.unroll_length / config.batch_size
        per_step = per_decision / config.action_repeat  # updates for a step
        alone = learner_alone(config, arguments.seconds)
        fed = measured(preset(name, **_stub_settings(config)), "stubs", arguments.seconds)
        # What Ray adds to a result: the driver's CPU time for a call of a stub worker beyond its updates.
        call_updates = fed.updates / fed.calls
        take = max(fed.cpu - call_updates / alone, 0.0)
        taken = call_updates / fed.cpu
        note(setting, "updates, unrolls at hand", alone, "updates per CPU second", 1.0)
        note(setting, "updates, unrolls from stub workers", taken, "updates per CPU second", taken / alone)
        note(setting, "unrolls that the learner takes", taken * config.batch_size, "unrolls per CPU second")
        note(setting, "driver's CPU time for a result", 1e3 * take, "ms")
        call_seconds, call_bytes = acting_alone(config, share, arguments.seconds)
        call_steps = decisions_per_call(config, share) * share.size * config.action_repeat
        note(setting, f"acting, {share.size} actors in a worker", call_steps / call_seconds, "steps per CPU second")
        actor_rate = call_steps / call_seconds / share.size
        note(setting, "actors at full speed that one learner feeds", taken / per_step / actor_rate, "actors")
        env = envs.make(TASK, 1)
        agent = agents.make(config, EnvSpec.of(env))
        env.close()
        params = agent.acting_params(jax.jit(agent.init)(jax.random.PRNGKey(0)))
        params_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        note(setting, "parameters", params_bytes / 1e6, "MB")
        note(setting, "a delivery", call_bytes / 1e6, "MB")
        call_updates = call_steps * per_step
        for gigabits, faster in ((1, 1), (10, 1), (10, 10)):
            costs = (call_steps, call_seconds, call_bytes, call_updates, 1 / alone / faster, take, params_bytes)
            sim = simulate(MACHINES, *costs, gigabits * GIGABIT)
            of = f"simulated, {gigabits} Gbit/s, learner x {faster}"
            note(setting, of, sim.steps, "steps/s")
            note(setting, f"{of}: 2e8 steps", STEPS / sim.steps / 3600, "hours")
            note(setting, f"{of}: updating", 100 * sim.learner, "% of the time")
            note(setting, f"{of}: taking results", 100 * sim.driver, "% of the time")
            note(setting, f"{of}: parameter lag", sim.lag, "updates")
    if arguments.output:
        write_csv(arguments.output, rows)


def _stub_settings(config: Config) -> dict[str, Any]:
    """Two stub workers deliver what two of the 50 would; they cost the machine next to nothing."""
    return {"env": TASK, "actors": 8, "random_steps": 0, "replay_capacity": 3000, "workers": 2, "seed": config.seed}


if __name__ == "__main__":
    main()
