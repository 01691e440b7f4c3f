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
from pathlib import Path
from typing import Any

from measuring import decide, seconds_per_call, step_and_collect, write_csv

from aql import compile_cache, envs
from aql.agents.base import EnvSpec
from aql.presets import preset
from aql.runs import commit
from aql.search import blocks

TASKS = {
    1: "control/cartpole-swingup",
    6: "control/walker-walk",
    21: "control/humanoid-walk",
    56: "control/humanoid_CMU-run",
}


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
            one_by_one = [decide(config, spec)]
            block, blocks.BLOCK_FLOATS = blocks.BLOCK_FLOATS, 10**12
            one_by_one.append(decide(config, spec))
            one_by_one[-1]()  # compiled while blocks are that large
            blocks.BLOCK_FLOATS = block
            size = config.bins**dimensions
            if size <= 20_000:
                one_by_one.append(decide(preset(name, env=task, agent="exact", actors=actors), spec))
            names = ("decision", "decision, one big batch", f"decision, exact ({size:,} actions)")
            times = [seconds / actors for seconds in seconds_per_call(*one_by_one)]
            for quantity, seconds in zip(names, times, strict=False):
                note(task, dimensions, setting, quantity, 1e6 * seconds, seconds / times[0])
            if name == "fast":
                bare, collect = step_and_collect(config)
                note(task, dimensions, setting, "bare EnvPool step", 1e6 * bare, bare / times[0])
                note(task, dimensions, setting, "collecting: share of bare speed", 1e6 * collect, bare / collect)
    if arguments.output:
        write_csv(arguments.output, rows)


if __name__ == "__main__":
    main()
