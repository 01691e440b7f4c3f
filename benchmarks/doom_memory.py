"""The memory that one actor's replay takes: 1e5 steps of 84x84 pixels should fit into 2.3 GB.

    python benchmarks/doom_memory.py [--output benchmarks/results/doom_memory.csv]

Each setting is measured in a process of its own: the replay is filled with steps as the actor makes them, a tenth of it
twice, unrolls are drawn from it, and its resident memory (RSS) is what the process has more than before.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from measuring import write_csv

from aql import agents
from aql.actions import ActionSpace
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.envs.doom import actions
from aql.experience import Unroll
from aql.presets import preset
from aql.replay import Replay
from aql.runs import commit

LIMIT = 2.3e9  # bytes for 1e5 steps
SETTINGS: dict[str, dict[str, Any]] = {
    "no memory": {},
    "LSTM 256, last action and reward": {"memory_size": 256, "see_last_action": True},
}


def resident() -> int:
    """Bytes of this process in memory."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields["VmRSS"].split()[0])


def one_step(config: Config) -> Unroll:
    """A step of one actor, with the leaves that the agent wants back."""
    space = ActionSpace.from_gymnasium(actions.space("full"))
    agent = agents.make(config, EnvSpec((84, 84, 3), space, np.dtype(np.uint8)))
    frame = np.random.default_rng(0).integers(0, 255, (1, 84, 84, 3)).astype(np.uint8)
    one, no = np.ones(1, np.float32), np.zeros(1, bool)
    now = TimeStep(frame, one, one, no, no, no_masks(1))

    def act(key: jax.Array) -> Any:
        return agent.act(agent.acting_params(agent.init(key)), agent.init_actors(np.arange(1), 1), key, now, "explore")

    decision, _ = jax.eval_shape(act, jax.random.key(0))
    extras = {name: np.ones(leaf.shape, leaf.dtype) for name, leaf in decision.extras.items()}
    return Unroll(frame, np.ones((1, space.dimensions), np.float32), one, one, no, now.mask, extras)


def measure(setting: str, steps: int) -> int:
    """Bytes that the replay has taken."""
    config = preset("paper", unroll_length=100, replay_capacity=steps, **SETTINGS[setting])
    step = one_step(config)
    before = resident()
    replay = Replay(1, steps, config.unroll_length, config.aligned_replay)
    for _ in range(steps + steps // 10):
        replay.add(step)
    replay.sample(np.random.default_rng(0), config.replayed_per_new)
    assert len(replay) == steps
    return resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--setting", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.setting:
        print(json.dumps(measure(options.setting, options.steps)))
        return
    rows: list[dict[str, Any]] = []
    for setting in SETTINGS:
        command = [sys.executable, __file__, "--steps", str(options.steps), "--setting", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=True, close_fds=False)
        taken = int(done.stdout.splitlines()[-1])
        row = {"setting": setting, "steps": options.steps, "bytes": taken, "bytes_per_step": taken // options.steps}
        rows.append(row | {"limit": int(LIMIT * options.steps / 100_000), "commit": commit()})
        words = f"{taken / 1e9:.3f} GB, {100 * taken / rows[-1]['limit']:.0f} % of the limit"
        print(f"{setting:34} {options.steps:,} steps: {words}", flush=True)
    if options.output:
        write_csv(options.output, rows)


if __name__ == "__main__":
    main()
