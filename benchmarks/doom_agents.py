"""How much faster `aql` is than `exact` on the 3528 actions of the doom levels, and where the time goes.

    python benchmarks/doom_agents.py [--output benchmarks/results/doom_agents.csv]

One run, everything interleaved, medians, figures as ratios. The preset is `paper` with N = 100 and M = 500 candidates
(as the paper has them for its first-person levels), pictures of 84x84, and three networks in front of Q and proposal:

- `head`: none, the embedding of 256 numbers is given;
- `small`: patches, as the suite `doom` has it;
- `paper`: the deep ResNet, the last action and reward, and an LSTM of 256.

Measured are a decision for each of `--actors` states, and an update from `--batch` unrolls of `--unroll` steps: with
the actors' a*, as the paper does it, and with a fresh search in the learner (N = 100, M = 500 there, too). Then

- actor steps a second: a decision, then a step of the level (measured with random actions), one after the other;
- learner unrolls a second;
- where the time goes: what a network adds to `head` is the torso; what a fresh search adds to an update is the search.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from measuring import write_csv

from aql import agents, compile_cache, envs
from aql.agents.base import Agent, EnvSpec
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.experience import Unroll
from aql.presets import preset
from aql.runs import commit
from aql.runtime.actor import jit_act

LEVEL = "doom/explore_goal_locations_small"
_NO_MEMORY = {"memory_size": 0, "see_last_action": False}
TORSOS: dict[str, dict[str, Any]] = {"head": _NO_MEMORY, "small": {"image_torso": "small"} | _NO_MEMORY, "paper": {}}
AGENTS = ("aql", "exact")
CANDIDATES = {"num_proposal": 100, "num_uniform": 500, "learner_num_proposal": 100, "learner_num_uniform": 500}


class Work(NamedTuple):
    """Something to be timed."""

    torso: str
    agent: str
    what: str  # decision, update or fresh update


def works(options: argparse.Namespace, level: EnvSpec) -> dict[Work, Callable[[], Any]]:
    """What to call for each."""
    calls: dict[Work, Callable[[], Any]] = {}
    for torso in options.torsos.split(","):
        spec = level if torso != "head" else EnvSpec((256,), level.action_space)
        for name in AGENTS:
            settings = CANDIDATES | TORSOS[torso] | {"unroll_length": options.unroll, "actors": options.actors}
            config = preset("paper", env=LEVEL, agent=name, **settings)
            agent = agents.make(config, spec)
            state = jax.jit(agent.init)(jax.random.key(0))
            calls[Work(torso, name, "decision")] = decision(agent, state, config, spec)
            calls[Work(torso, name, "update")] = update(agent, state, options, spec)
            fresh = agents.make(preset("paper", env=LEVEL, agent=name, fresh_search=True, **settings), spec)
            calls[Work(torso, name, "fresh update")] = update(fresh, state, options, spec)
    return calls


def decision(agent: Agent, state: Any, config: Config, spec: EnvSpec) -> Callable[[], Any]:
    """Of all actors together."""
    act, params = jit_act(agent), agent.acting_params(state)
    actor_state = agent.init_actors(np.arange(config.actors), config.actors)
    now, key = seen(spec, config.actors), jax.random.key(1)
    return lambda: act(params, actor_state, key, np.uint32(0), now, mode="explore")


def seen(spec: EnvSpec, count: int) -> TimeStep:
    zeros, no = np.zeros(count, np.float32), np.zeros(count, bool)
    return TimeStep(observations(spec, count), zeros, zeros + 1, no, no, no_masks(count))


def observations(spec: EnvSpec, *leading: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (*leading, *spec.observation_shape)).astype(spec.observation_dtype)


def update(agent: Agent, state: Any, options: argparse.Namespace, spec: EnvSpec) -> Callable[[], Any]:
    """From one batch of unrolls."""
    shape = (options.batch, options.unroll + 1)
    actor_state = agent.init_actors(np.arange(1), 1)
    extras = jax.eval_shape(
        lambda: agent.act(agent.acting_params(state), actor_state, jax.random.key(0), seen(spec, 1), "explore")[0]
    ).extras
    rng = np.random.default_rng(1)
    unrolls = Unroll(
        observations(spec, *shape),
        rng.integers(0, agent.space.num_choices, (*shape, agent.space.dimensions)).astype(np.float32),
        rng.normal(size=shape).astype(np.float32),
        np.ones(shape, np.float32),
        np.zeros(shape, bool),
        np.ones((*shape, 0), bool),
        {name: np.zeros((*shape, *leaf.shape[1:]), leaf.dtype) for name, leaf in extras.items()},
    )
    learn, key = jax.jit(agent.update), jax.random.key(2)
    return lambda: learn(state, key, unrolls)


def level_step(actors: int) -> tuple[Callable[[], Any], envs.VectorEnv]:
    """A step of all levels with random actions."""
    env = envs.make(LEVEL, actors)
    env.reset(0)
    rng = np.random.default_rng(0)

    def step() -> None:
        env.send(rng.integers(0, env.action_space.num_choices, (actors, 7)).astype(np.float32))
        env.receive()

    return step, env


def medians(calls: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, float]:
    """Seconds of each call, all of them once in every round, so that what disturbs one disturbs the others."""
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 1):  # the first one compiles
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            if i > 0:
                times[name].append(time.perf_counter() - start)
    return {name: float(np.median(some)) for name, some in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4, help="unrolls in an update")
    parser.add_argument("--unroll", type=int, default=100, help="steps of an unroll; the paper has 100")
    parser.add_argument("--torsos", default="head,small,paper", help="which ones; head is needed for shares")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    compile_cache.enable()
    step, env = level_step(options.actors)
    calls: dict[Any, Callable[[], Any]] = {"level": step, **works(options, EnvSpec.of(env))}
    seconds = medians(calls, options.rounds)
    env.close()
    rows: list[dict[str, Any]] = []
    cores = len(os.sched_getaffinity(0))
    setting = f"{options.actors} actors, batches of {options.batch} unrolls of {options.unroll}, {cores} cores"

    def note(torso: str, quantity: str, both: list[float], ratio: float) -> None:
        """What is measured of `aql` and of `exact`, and how much better `aql` is."""
        aql, exact = both
        row = {"torso": torso, "quantity": quantity, "aql": f"{aql:.4g}", "exact": f"{exact:.4g}"}
        rows.append(row | {"ratio": round(ratio, 3), "setting": setting, "commit": commit()})
        print(f"{torso:6} {quantity:42} aql {aql:10.4g}   exact {exact:10.4g}   x {ratio:.2f}", flush=True)

    print(f"{LEVEL}, {setting}; a level's step takes {1e3 * seconds['level'] / options.actors:.3f} ms")
    for torso in options.torsos.split(","):
        both = {what: [seconds[Work(torso, name, what)] for name in AGENTS] for what in ("decision", "update")}
        both["fresh update"] = [seconds[Work(torso, name, "fresh update")] for name in AGENTS]
        steps = [options.actors / (own + seconds["level"]) for own in both["decision"]]
        note(torso, "actor steps/s with the level", steps, steps[0] / steps[1])
        decisions = [options.actors / own for own in both["decision"]]
        note(torso, "decisions/s", decisions, decisions[0] / decisions[1])
        for what, quantity in (("update", "with the actors' a*"), ("fresh update", "with a fresh search")):
            unrolls = [options.batch / own for own in both[what]]
            note(torso, f"learner unrolls/s {quantity}", unrolls, unrolls[0] / unrolls[1])
    for torso in options.torsos.split(","):
        for what in ("decision", "update", "fresh update"):
            whole = [seconds[Work(torso, name, what)] for name in AGENTS]
            head = [seconds[Work("head", name, what)] for name in AGENTS]
            search = head
            if what != "decision":
                stored = [seconds[Work("head", name, "update")] for name in AGENTS]
                search = [a - b for a, b in zip(head, stored, strict=True)]
            parts = {"torso": [a - b for a, b in zip(whole, head, strict=True)], "search": search}
            parts["the rest"] = [h - s for h, s in zip(head, search, strict=True)]
            for part, own in parts.items():
                shares = [max(0.0, a / b) for a, b in zip(own, whole, strict=True)]
                note(torso, f"share of a {what}: {part}", shares, own[1] / own[0] if min(own) > 0 else float("nan"))
    if options.output:
        write_csv(options.output, rows)


if __name__ == "__main__":
    main()
