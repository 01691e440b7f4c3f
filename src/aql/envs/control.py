"""Every task of the DeepMind Control Suite, stepped by EnvPool where it is right, by dm_control otherwise.

Both give dm_control's own observation: its keys in its order, flattened into one float32 vector.
tests/conformance/test_control_suite.py holds the tables below against dm_control, which is slow to import.
"""

import ctypes.util
import importlib
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from aql.actions import ActionSpace
from aql.envs.base import TimeStep, VectorEnv, no_masks
from aql.envs.ids import refuse_options
from aql.envs.observations import Observations
from aql.envs.serial import Outcome, RenderedEnv, SerialVector, spread_seed
from aql.errors import UserError, unknown

# Every task's own limit, except that of `lqr`, which has none: EnvPool cuts it here, and so do we.
EPISODE_STEPS = 1000

TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles", "three_poles"),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}

# EnvPool gives all tasks of a domain the same keys, mostly zero where the task lacks them (not `origin`).
_PADDING = {
    **dict.fromkeys(("dog-stand", "dog-walk", "dog-trot", "dog-run"), ("ball_state", "target_position")),
    "finger-spin": ("target_position", "dist_to_target"),
    "fish-upright": ("target",),
    **dict.fromkeys(("humanoid-stand", "humanoid-walk", "humanoid-run"), ("position",)),
    "humanoid-run_pure_state": (
        "joint_angles",
        "head_height",
        "extremities",
        "torso_vertical",
        "com_velocity",
    ),
    **dict.fromkeys(("quadruped-walk", "quadruped-run"), ("origin", "rangefinder", "ball_state", "target_position")),
    "quadruped-escape": ("ball_state", "target_position"),
    "quadruped-fetch": ("origin", "rangefinder"),
}

# Domains that EnvPool's physics gets wrong. Its MuJoCo 3.6.0 lets a body that can only turn around its own centre give
# way in contacts, as the finger's spinner: whoever pushes it pushes a cushion (docs/tuning-log.md, finger-spin).
_NOT_ON_ENVPOOL = ("finger",)

# The one task whose keys EnvPool has in another order than dm_control.
_ORDER = {"fish-swim": ("joint_angles", "upright", "target", "velocity")}


def ids() -> list[str]:
    """All tasks, as `control/<domain>-<task>`."""
    return [f"control/{domain}-{task}" for domain, tasks in TASKS.items() for task in tasks]


def envpool_id(domain: str, task: str) -> str:
    """EnvPool's name of a task: `ball_in_cup`, `catch` -> `BallInCupCatch-v1`."""
    words = f"{domain}_{task}".split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "-v1"


def make(env_id: str, num_envs: int, num_threads: int | None = None, backend: str = "auto") -> VectorEnv:
    """The vector for `control/<domain>-<task>`; backend is `auto`, `envpool` or `dm_control`."""
    refuse_options(env_id)
    domain, task = parse(env_id)
    if backend not in ("auto", "envpool", "dm_control"):
        raise unknown("backend", backend, ["envpool", "dm_control"], "expected auto, envpool or dm_control")
    if backend == "auto" and domain in _NOT_ON_ENVPOOL:
        backend = "dm_control"
    if backend != "dm_control":
        envpool = _load_envpool()
        if envpool is not None and envpool_id(domain, task) in envpool.list_all_envs():
            return EnvPoolVector(envpool, domain, task, num_envs, num_threads)
        if backend == "envpool":
            raise UserError(f"EnvPool is not installed or lacks {env_id}: pip install 'aql[control]'")
    suite = load_suite()
    return SerialVector([DmControlEnv(suite, domain, task) for _ in range(num_envs)])


def make_rendered(env_id: str) -> RenderedEnv:
    """The task in dm_control, which can draw it."""
    domain, task = parse(env_id)
    env = RenderedEnv(DmControlEnv(load_suite(), domain, task))
    try:
        env.render(8, 8)  # so that a missing driver shows before the film, not after the episode
    except Exception as error:
        raise UserError(
            f"no OpenGL to draw {env_id} with ({error}): on Debian, apt install libegl1 libgl1-mesa-dri, "
            "and leave MUJOCO_GL unset or set it to egl"
        ) from error
    return env


def parse(env_id: str) -> tuple[str, str]:
    """The domain and the task of an id."""
    domain, _, task = env_id.removeprefix("control/").partition("-")
    if task not in TASKS.get(domain, ()):
        raise unknown("environment", env_id, ids(), "`aql envs` lists them all")
    return domain, task


def load_suite() -> Any:
    """Imports dm_control.suite so that it neither warns nor fails on a machine without a screen."""
    if "MUJOCO_GL" not in os.environ and "DISPLAY" not in os.environ:
        # dm_control decides on import. Only films draw: without EGL all else still works.
        os.environ["MUJOCO_GL"] = "egl" if ctypes.util.find_library("EGL") else "off"
    suite = _optional("dm_control.suite")
    if suite is None:
        raise UserError("control tasks need dm_control: pip install 'aql[control]'")
    return suite


def _load_envpool() -> Any:
    """EnvPool, or None if it is not installed.

    On import it registers all its families, and Jumanji's alone takes half of the time since it draws with matplotlib.
    It is kept out; `import envpool.jumanji.registration` registers it all the same.
    """
    slow = "envpool.jumanji.registration"
    if slow in sys.modules:
        return _optional("envpool")
    sys.modules[slow] = types.ModuleType(slow)
    try:
        return _optional("envpool")
    finally:
        del sys.modules[slow]


def _optional(module: str) -> Any:
    """The module, or None if its package is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        return None


class EnvPoolVector:
    """A `VectorEnv` of one task on EnvPool's threads, through numpy.

    EnvPool takes seeds only when a pool is made, so that `reset` makes a new one: 50 to 100 ms for each
    environment (dogs: 500 ms), spread over the cores.
    """

    def __init__(self, envpool: Any, domain: str, task: str, num_envs: int, num_threads: int | None) -> None:
        self._envpool = envpool
        self._id = envpool_id(domain, task)
        self._num_threads = num_threads or 0  # EnvPool's word for as many as there are cores
        self._pool: Any = None
        self.num_envs = num_envs
        spec = envpool.make_spec(self._id)
        observation = spec.observation_spec()
        name = f"{domain}-{task}"
        hidden = ("env_id", "players", *_PADDING.get(name, ()))
        self.observation_keys = _ORDER.get(name) or tuple(k for k in observation._fields if k not in hidden)
        length = sum(int(np.prod(getattr(observation, key).shape)) for key in self.observation_keys)
        self.action_space = _action_space(spec.action_spec())
        self.observations = Observations((length,))

    def reset(self, seed: int | None) -> TimeStep:
        """Starts new episodes in all environments; a seed makes a new pool."""
        if seed is not None:
            self._pool = None  # its threads and memory first, then the new one
            self._pool = self._envpool.make_dm(
                self._id,
                num_envs=self.num_envs,
                num_threads=self._num_threads,
                seed=spread_seed(seed, self.num_envs),
            )
        return self._convert(self._pool.reset())

    def send(self, action: np.ndarray) -> None:
        """Starts a step with the actions [B, D] on EnvPool's threads."""
        self._pool.send(self.action_space.to_env(np.asarray(action)))

    def receive(self) -> TimeStep:
        """Waits for the step."""
        return self._convert(self._pool.recv())

    def close(self) -> None:
        """Frees the pool."""
        self._pool = None

    def _convert(self, step: Any) -> TimeStep:
        # EnvPool promises ids beside the rows, not an order of the rows.
        order = np.argsort(step.observation.env_id, kind="stable")
        columns = [getattr(step.observation, key).reshape(self.num_envs, -1)[order] for key in self.observation_keys]
        first = step.step_type[order] == 0
        # The first step repeats the reward of the step before: it belongs to no transition.
        return TimeStep(
            np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind"),
            np.where(first, np.float32(0), step.reward[order]),
            np.where(first, np.float32(1), step.discount[order]),
            first,
            step.step_type[order] == 2,
            no_masks(self.num_envs),
        )


class DmControlEnv:
    """One task in dm_control itself."""

    def __init__(self, suite: Any, domain: str, task: str) -> None:
        self._suite, self._domain, self._task = suite, domain, task
        self._env = self._load(seed=0)
        self._steps = 0
        self.observation_keys = tuple(self._env.observation_spec())
        length = sum(int(np.prod(spec.shape)) for spec in self._env.observation_spec().values())
        self.action_space = _action_space(self._env.action_spec())
        self.observations = Observations((length,))

    def reset(self, seed: int | None) -> Outcome:
        """Starts an episode. A seed loads the task again: some tasks draw the model itself from it."""
        if seed is not None:
            self._env.close()
            self._env = self._load(seed)
        self._steps = 0
        return Outcome(_flatten(self._env.reset().observation))

    def step(self, action: np.ndarray) -> Outcome:
        """One control step."""
        step = self._env.step(self.action_space.to_env(action))
        self._steps += 1
        last = step.last() or self._steps == EPISODE_STEPS
        return Outcome(_flatten(step.observation), step.reward, step.discount, last)

    def render(self, height: int, width: int) -> np.ndarray:
        """What the task's first camera sees."""
        return np.array(self._env.physics.render(height, width, camera_id=0))

    @property
    def steps_per_second(self) -> float:
        """As many as the task controls its model."""
        return 1 / float(self._env.control_timestep())

    @property
    def action_names(self) -> Sequence[str]:
        """The model's names of its actuators."""
        model = self._env.physics.model
        return [model.id2name(i, "actuator") or f"{i}" for i in range(self.action_space.dimensions)]

    def close(self) -> None:
        """Frees the physics and its OpenGL context."""
        self._env.close()

    def _load(self, seed: int) -> Any:
        return self._suite.load(self._domain, self._task, task_kwargs={"random": seed})


def _action_space(spec: Any) -> ActionSpace:
    """The task's bounds. Only `lqr` has none, which MuJoCo spells as 1e10: it gets [-1, 1]."""
    unlimited = np.abs(spec.maximum) > 1e9
    low, high = np.where(unlimited, -1.0, spec.minimum), np.where(unlimited, 1.0, spec.maximum)
    return ActionSpace.from_dm_env(spec.replace(minimum=low, maximum=high))


def _flatten(observation: Any) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in observation.values()]).astype(np.float32)
