"""Gymnasium environments, by id, by factory or as instances."""

import functools
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from aql.actions import ActionSpace
from aql.envs import adapters, ids, observations
from aql.envs.serial import EVERYTHING, Outcome, RenderedEnv, SerialVector
from aql.errors import UserError, unknown

ASSUMED_STEPS_PER_SECOND = 30  # of an environment that does not tell
Build = Callable[..., gymnasium.Env]  # makes one environment; keywords go to its constructor


class GymEnv:
    """One Gymnasium environment, its spaces turned into ours.

    What observations become, `Observations` knows.
    Whether an episode reached its goal comes from `info["success"]` or, as sb3 has it, `info["is_success"]`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self._env = env
        self._spaces = (env.observation_space, env.action_space)
        self._steps = 0
        self.action_space = ActionSpace.from_gymnasium(env.action_space)
        self._masks = Masks(env, self.action_space)
        self.observations = observations.from_gymnasium(env.observation_space)

    def reset(self, seed: int | None) -> Outcome:
        """Starts an episode."""
        self._steps = 0
        observation, info = unpack_reset(self._env.reset(seed=seed))
        if self._spaces != (self._env.observation_space, self._env.action_space):
            raise UserError(f"{self._env} changed its spaces at a reset: they must stay as they were at the start")
        return Outcome(self._observe(observation), mask=self._masks.read(info, 0, over=False))

    def step(self, action: np.ndarray) -> Outcome:
        """Termination has discount 0; a time limit, which Gymnasium calls truncation, has discount 1."""
        self._steps += 1
        came = self._env.step(self.action_space.to_env(action))
        observation, reward, terminated, truncated, info = unpack_step(came, self._steps)
        last = bool(terminated or truncated)
        mask = self._masks.read(info, self._steps, over=bool(terminated))
        success = info.get("success", info.get("is_success", math.nan)) if last else math.nan
        return Outcome(self._observe(observation), reward, float(not terminated), last, mask, success=float(success))

    def render(self, height: int, width: int) -> np.ndarray:
        """RGB in the environment's own size."""
        del height, width
        try:
            frame = self._env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise UserError(f"{self._env.spec and self._env.spec.id} cannot be rendered: {error}") from error
        if not isinstance(frame, np.ndarray):
            raise UserError(f"{self._env} gives no picture: it needs render_mode='rgb_array'")
        return frame

    @property
    def steps_per_second(self) -> float:
        """What the environment's metadata say."""
        return float(self._env.metadata.get("render_fps") or ASSUMED_STEPS_PER_SECOND)

    @property
    def action_names(self) -> Sequence[str]:
        """What the environment's metadata call them, or else the places in its action space."""
        return self._env.metadata.get("action_names") or self.action_space.names

    @property
    def restarts(self) -> int | None:
        """How many processes of the environment died and were replaced, if it counts them."""
        count = self._env.get_wrapper_attr("restarts") if self._env.has_wrapper_attr("restarts") else None
        return count if isinstance(count, int) else None

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _observe(self, observation: Any) -> np.ndarray:
        try:
            return self.observations.one(observation)
        except UserError as error:
            raise UserError(f"{error} (at step {self._steps} of an episode)") from error


def unpack_reset(came: Any) -> tuple[Any, dict[str, Any]]:
    """(observation, info), as it has to come from `reset`."""
    if not (isinstance(came, tuple) and len(came) == 2 and isinstance(came[1], dict)):
        raise UserError(f"reset gave {_kinds(came)}: it must give (observation, info), info a dict")
    return came


def unpack_step(came: Any, step: int) -> tuple[Any, float, Any, Any, dict[str, Any]]:
    """(observation, reward, terminated, truncated, info), as it has to come from a step of an episode."""
    if not (isinstance(came, tuple) and len(came) == 5 and isinstance(came[4], dict)):
        raise UserError(
            f"step gave {_kinds(came)}: it must give (observation, reward, terminated, truncated, info), info a dict"
        )
    observation, reward, terminated, truncated, info = came
    if np.ndim(reward) > 0 or np.asarray(reward).dtype.kind not in "biuf" or not math.isfinite(reward):
        raise UserError(f"the reward is {reward!r} at step {step} of an episode: it must be one finite number")
    return observation, float(reward), terminated, truncated, info


def _kinds(came: Any) -> str:
    """What was given, in short: a tuple by the types of its parts."""
    return f"({', '.join(type(part).__name__ for part in came)})" if isinstance(came, tuple) else type(came).__name__


class Masks:
    """Reads what an environment allows next, from `info["action_mask"]` or a method `action_masks()`."""

    def __init__(self, env: gymnasium.Env, space: ActionSpace) -> None:
        self._ask = env.get_wrapper_attr("action_masks") if env.has_wrapper_attr("action_masks") else None
        self._space = space
        self._size: int | None = None  # known from the first reset

    def read(self, info: dict[str, Any], step: int, over: bool) -> np.ndarray:
        """[M] the mask after some step of an episode. After its end there is nothing to choose, so anything goes."""
        given = info.get("action_mask")
        if given is None and self._ask is not None:
            given = self._ask()
        if over and self._size is not None:
            return np.ones(self._size, bool)
        try:
            mask = EVERYTHING if given is None else self._space.mask_from_env(given)
        except UserError as error:
            raise UserError(f"{error} (at step {step} of an episode)") from error
        if self._size is None:
            self._size = len(mask)
        elif self._size != len(mask):
            raise UserError(
                f"the action mask has {len(mask)} entries at step {step} of an episode and had "
                f"{self._size} before: an environment that masks must do so at every reset and every step"
            )
        return mask


def from_envs(envs: Sequence[gymnasium.Env]) -> SerialVector:
    """A vector of Gymnasium environments that exist already. They must share their spaces."""
    if not envs:
        raise UserError("no environments were given: at least 1 is needed")
    for env in envs:
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"an environment is {env!r}, of {type(env).__name__}: expected a gymnasium.Env")
    singles = [GymEnv(env) for env in envs]
    if len({id(env) for env in envs}) < len(envs):
        raise UserError("the same environment instance was given twice: each needs its own")
    for env in envs[1:]:
        if env.action_space != envs[0].action_space or env.observation_space != envs[0].observation_space:
            raise UserError(f"{env} and {envs[0]} have different spaces: the environments of a vector share them")
    return SerialVector(singles)


def make(build: Build, num_envs: int) -> SerialVector:
    """A vector of new environments."""
    return from_envs([build() for _ in range(num_envs)])


def make_rendered(build: Build) -> RenderedEnv:
    """One environment with render_mode='rgb_array'. A factory without that argument is called without it."""
    if _takes_keyword(build, "render_mode"):
        return RenderedEnv(GymEnv(build(render_mode="rgb_array")))
    return RenderedEnv(GymEnv(build()))


def _takes_keyword(function: Callable, name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def builder(env_id: str, known_ids: Sequence[str] = ()) -> Build:
    """What to call for `CartPole-v1`, `module:Id-v0` or `package.module:factory`; `known_ids` help with a typo.

    Any keywords, and the options of the id, go to the constructor. Two options are ours: see `adapters`.
    """
    name, options = ids.split(env_id)
    ours = {key: options.pop(key) for key in ("bound", "observe") if key in options}
    construct = _builder(name, known_ids)

    @functools.wraps(construct)  # `make_rendered` looks at the constructor's own arguments
    def build(**more: Any) -> gymnasium.Env:
        try:
            env = construct(**options, **more)
        except TypeError as error:
            if not options:
                raise
            raise UserError(f"environment {env_id!r}: {error}; leave the option out") from error
        return adapters.adapt(env, **ours)

    return build


def _builder(env_id: str, known_ids: Sequence[str]) -> Build:
    """What to call for an id without options."""
    module_name, colon, attribute = env_id.partition(":")
    if colon:
        module = _import(module_name, env_id)
        if hasattr(module, attribute):
            return _checked(getattr(module, attribute), env_id)
        # Importing the module has registered its environments: that is what Gymnasium's own syntax is for.
        if attribute not in gymnasium.registry:
            factories = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
            remedy = f"{module_name} has no such attribute and registers no such Gymnasium id"
            raise unknown("environment", attribute, [*factories, *gymnasium.registry], remedy)

    def build(**options: Any) -> gymnasium.Env:
        try:
            # The checker costs time at every start and warns about what does no harm here.
            return gymnasium.make(env_id, disable_env_checker=True, **options)
        except gymnasium.error.UnregisteredEnv as error:
            remedy = "`aql envs` lists ours; any Gymnasium id or package.module:factory works too"
            raise unknown("environment", env_id, [*known_ids, *gymnasium.registry], remedy) from error
        except (gymnasium.error.Error, ModuleNotFoundError) as error:
            raise UserError(f"environment {env_id!r}: {' '.join(str(error).split())}") from error

    return build


def _import(module_name: str, env_id: str) -> Any:
    if os.getcwd() not in sys.path and "" not in sys.path:
        # A console script has no current directory on its path, but `my_envs:make` beside it should work.
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # an import inside the user's module failed: the traceback shows where
        raise UserError(
            f"environment {env_id!r}: there is no module {error.name!r}; run where it can be imported"
        ) from error


def _checked(factory: Any, env_id: str) -> Build:
    """The factory, which must give a Gymnasium environment."""
    if not callable(factory):
        raise UserError(f"{env_id!r} is no callable but {factory!r}: expected one that returns a gymnasium.Env")

    @functools.wraps(factory)  # `make_rendered` looks at the factory's own arguments
    def build(**options: Any) -> gymnasium.Env:
        env = factory(**options)
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{env_id!r} returned {type(env).__name__}: expected a gymnasium.Env")
        return env

    return build
