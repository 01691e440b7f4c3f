"""The folder of a run: what was decided, what was measured, and checkpoints to go on from."""

import fcntl
import importlib.metadata
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from aql import agents, envs
from aql.agents.base import Agent, EnvSpec, Params
from aql.config import Config
from aql.errors import UserError
from aql.runtime import checkpoint
from aql.runtime.learner import Learner

CONFIG = "config.json"
PACKAGES = (
    *("aql", "jax", "jaxlib", "flax", "optax", "numpy", "gymnasium"),
    *("envpool", "mujoco", "dm_control", "vizdoom", "ray"),
)


def default_folder(config: Config) -> Path:
    """runs/<env>/<agent>/<time>-s<seed>."""
    now = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / re.sub(r"[?&]", "-", config.env) / config.agent / f"{now}-s{config.seed}"


def create(run: Path, config: Config) -> None:
    """Makes the folder, which must not hold anything yet, and writes down what was decided."""
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise UserError(f"{run} exists and is not overwritten: choose another --out, or go on with --resume {run}")
    run.mkdir(parents=True, exist_ok=True)
    write_config(run, config)


def write_config(run: Path, config: Config) -> None:
    """Writes down what was decided, and which source began the run; others that go on with it come after that."""
    source = {"versions": _versions(), "commit": commit()}
    facts = {"config": config.to_json(), **source}
    if (run / CONFIG).is_file():
        began = json.loads((run / CONFIG).read_text())
        earlier = began.get("resumed_by", [])
        last = earlier[-1] if earlier else {name: began.get(name) for name in source}
        facts = began | {"config": config.to_json()} | ({} if source == last else {"resumed_by": [*earlier, source]})
    temporary = run / f".{CONFIG}.tmp"
    temporary.write_text(json.dumps(facts, indent=2) + "\n")
    temporary.replace(run / CONFIG)


def read_config(run: Path) -> Config:
    """The config of an existing run."""
    path = run / CONFIG
    if not path.is_file():
        raise UserError(f"{run} is not a run: it has no {CONFIG}; name the folder that `aql train` printed")
    try:
        facts = json.loads(path.read_text())
        values = facts["config"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it, or train again") from error
    try:
        return Config.from_json(values)
    except UserError as error:
        source = facts.get("commit") or facts.get("versions", {}).get("aql")
        raise UserError(
            f"{path} was written by another aql ({source}): {error}; use that one, or train again"
        ) from error


@contextmanager
def alone_in(run: Path) -> Iterator[None]:
    """Holds the run's lock: two processes that train one run would remove each other's checkpoints."""
    with (run / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{run} is being trained by another process: wait for it, or stop it first") from None
        yield


class Restored(NamedTuple):
    """A trained agent, ready to act."""

    config: Config
    agent: Agent
    params: Params
    actor_steps: int


def restore(run: Path) -> Restored:
    """The agent of the run's newest checkpoint."""
    config = read_config(run)
    arrays, meta = checkpoint.load_latest(run, groups=("agent",))  # the replay can be gigabytes
    env = envs.make(config.env, 1)
    agent = agents.make(config, EnvSpec.of(env))
    env.close()
    learner = Learner(agent, config)
    learner.set_state(arrays["agent"], meta["learner"])
    return Restored(config, agent, learner.params, meta["actor_steps"])


def commit() -> str | None:
    """The commit of the source that runs, marked if it was changed since; None outside a checkout."""
    described = _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    return described if _git("ls-files", "--error-unmatch", Path(__file__).name) else None


def _git(*arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    # With these options Python spawns instead of forking, which JAX's threads do not survive for sure.
    command = [git, "-C", str(Path(__file__).parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, close_fds=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
