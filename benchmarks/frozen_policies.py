"""Is what actors earn while they learn still earned when learning stops?

    python benchmarks/frozen_policies.py control/finger-turn_easy [--steps 120000] [--seed 0] [--episodes 32]

Trains, keeps the parameters of 16 moments that are a thousand steps apart, and plays whole episodes with them:

- `actors`: what those earn that explore and learn meanwhile, in their episodes that end after the first moment.
- `average`: greedy decisions of the last moment, as `aql eval` makes them, by an average of the critics.
- `critics`: by the critics of the last moment themselves.
- `mean of all`: by the mean of the critics of all moments.
- `in turn, N`: by the critics of all moments, another one every N decisions.

If actors earn much more than the average, and turns as much as actors, then it is the change of Q that helps them: in
a state where actions are worth nearly the same, a Q that stays as it is chooses the same one for ever.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from measuring import write_csv

from aql import compile_cache, envs, runs
from aql.agents.q_learning import ActingParams
from aql.envs.base import VectorEnv
from aql.presets import preset
from aql.runtime.actor import jit_act
from aql.runtime.local import Trainer

MOMENTS, APART = 16, 1_000
TURNS = (1, 10, 50, 200)

Turn = Callable[[int], ActingParams]  # the number of a decision -> who makes it


def without_average(params: ActingParams) -> ActingParams:
    """Greedy decisions by the critics that actors use."""
    return params._replace(averages=())


def in_turn(moments: list[ActingParams], length: int) -> Turn:
    """Another one of the moments every `length` decisions; neighbours are far apart in time."""
    return lambda decision: moments[decision // length * 7 % len(moments)]


def advance(trainer: Trainer, steps: int) -> None:
    """Trains until so many actor steps were taken."""
    while trainer.actor.steps < steps:
        trainer.step(lambda *_, **__: None)


def play(trainer: Trainer, env: VectorEnv, turn: Turn, seed: int) -> np.ndarray:
    """The returns [B] of a greedy episode in each environment."""
    decide, key = jit_act(trainer.agent), jax.random.key(seed)
    actors = trainer.agent.init_actors(np.arange(env.num_envs), env.num_envs)
    now, returns, playing, number = env.reset(seed), np.zeros(env.num_envs), np.ones(env.num_envs, bool), 0
    while playing.any():
        decision, actors = decide(turn(number), actors, key, np.uint32(number), now, mode="greedy")
        env.send(np.asarray(decision.action))
        now, number = env.receive(), number + 1
        returns += np.where(playing, now.reward, 0)
        playing &= ~now.last
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--steps", type=int, default=120_000, help="of the last moment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    compile_cache.enable()
    never = 10 * options.steps
    config = preset("fast", env=options.env, seed=options.seed, steps=never, eval_every=never, log_every=never)
    env, eval_env = envs.make_for(config, config.actors), envs.make_for(config, options.episodes)
    trainer = Trainer.in_process(config, env, eval_env)

    moments: list[ActingParams] = []
    episodes_before = 0
    for steps in range(options.steps - (MOMENTS - 1) * APART, options.steps + 1, APART):
        advance(trainer, steps)
        episodes_before = episodes_before or len(trainer.actor.finished_returns)
        moments.append(jax.tree.map(np.array, trainer.learner.params))
    while len(trainer.actor.finished_returns) < episodes_before + options.episodes:
        advance(trainer, trainer.actor.steps + 1)
    earned = np.array(trainer.actor.finished_returns[episodes_before:])

    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *(moment.network for moment in moments))
    critics = [without_average(moment) for moment in moments]
    policies: dict[str, Turn] = {
        "average": lambda _: moments[-1],
        "critics": lambda _: critics[-1],
        "mean of all": lambda _: critics[-1]._replace(network=mean),
    } | {f"in turn, {length}": in_turn(critics, length) for length in TURNS}
    returns = {"actors": earned} | {
        name: play(trainer, eval_env, turn, seed) for seed, (name, turn) in enumerate(policies.items())
    }
    rows: list[dict[str, Any]] = []
    for policy, each in returns.items():
        deviation = each.std(ddof=1) / len(each) ** 0.5
        print(f"{policy:14} {each.mean():6.0f}   (deviation of the mean {deviation:.0f}, {len(each)} episodes)")
        facts = {"task": options.env, "seed": options.seed, "actor_steps": options.steps, "policy": policy}
        measured = {"return": round(each.mean(), 1), "deviation_of_mean": round(deviation, 1), "episodes": len(each)}
        rows.append(facts | measured | {"commit": runs.commit()})
    if options.output:
        write_csv(options.output, rows)


if __name__ == "__main__":
    main()
