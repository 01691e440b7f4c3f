"""Gymnasium environments, by id, by factory or as instances."""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from aql.actions import ActionSpace
from aql.envs import adapters, ids
from aql.envs.serial import Outcome, RenderedEnv, SerialVector
from aql.errors import UserError, unknown


class GymEnv:
    """One Gymnasium environment, its spaces turned into ours.

    Boxes become float32, a finite set becomes one-hot
    and everything nested is flattened into one float32 vector, as `gymnasium.spaces.utils.flatten` does.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self._env = env
        self.action_space = ActionSpace.from_gymnasium(env.action_space)
        self._flattened, self.observation_shape, self.observation_dtype = _observation(env.observation_space)

    def reset(self, seed: int | None) -> np.ndarray:
        """Starts an episode."""
        return self._convert(self._env.reset(seed=seed)[0])

    def step(self, action: np.ndarray) -> Outcome:
        """Termination has discount 0; a time limit, which Gymnasium calls truncation, has discount 1."""
        observation, reward, terminated, truncated, _ = self._env.step(self.action_space.to_env(action))
        last = bool(terminated or truncated)
        return Outcome(self._convert(observation), float(reward), float(not terminated), last)

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

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _convert(self, observation: Any) -> np.ndarray:
        if self._flattened:
            observation = spaces.utils.flatten(self._env.observation_space, observation)
        return np.asarray(observation, self.observation_dtype)


def from_envs(envs: Sequence[gymnasium.Env]) -> SerialVector:
    """A vector of Gymnasium environments that exist already. They must share their spaces."""
    if not envs:
        raise UserError("no environments were given: at least 1 is needed")
    singles = [GymEnv(env) for env in envs]
    if len({id(env) for env in envs}) < len(envs):
        raise UserError("the same environment instance was given twice: each needs its own")
    for env in envs[1:]:
        if env.action_space != envs[0].action_space or env.observation_space != envs[0].observation_space:
            raise UserError(f"{env} and {envs[0]} have different spaces: the environments of a vector share them")
    return SerialVector(singles)


def make(env_id: str, num_envs: int, known_ids: Sequence[str] = ()) -> SerialVector:
    """`CartPole-v1`, `module:Id-v0` or `package.module:factory`; `known_ids` are suggested for a typo."""
    build = builder(env_id, known_ids)
    return from_envs([build() for _ in range(num_envs)])


def make_rendered(env_id: str, known_ids: Sequence[str] = ()) -> RenderedEnv:
    """One environment with render_mode='rgb_array'. A factory without that argument is called without it."""
    build = builder(env_id, known_ids)
    if _takes_keyword(build, "render_mode"):
        return RenderedEnv(GymEnv(build(render_mode="rgb_array")))
    return RenderedEnv(GymEnv(build()))


def _takes_keyword(function: Callable, name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def builder(env_id: str, known_ids: Sequence[str] = ()) -> Callable[..., gymnasium.Env]:
    """What to call for one environment; any keywords, and the options of the id, go to its constructor.

    Two options are ours: see `adapters`.
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


def _builder(env_id: str, known_ids: Sequence[str]) -> Callable[..., gymnasium.Env]:
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


def _checked(factory: Any, env_id: str) -> Callable[..., gymnasium.Env]:
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


def _observation(space: gymnasium.Space) -> tuple[bool, tuple[int, ...], np.dtype]:
    """Whether the space is flattened, and what comes out: shape and dtype."""
    if isinstance(space, spaces.Box):
        is_image = space.dtype == np.uint8 and len(space.shape) == 3
        return False, space.shape, np.dtype(np.uint8 if is_image else np.float32)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Dict | spaces.Tuple):
        flat = spaces.utils.flatten_space(space) if space.is_np_flattenable else None
        if isinstance(flat, spaces.Box):
            return True, flat.shape, np.dtype(np.float32)
    raise UserError(
        f"the observation space {space} is not supported: expected Box, Discrete, MultiDiscrete, "
        "MultiBinary, Tuple or Dict; wrap the environment in gymnasium.wrappers.TransformObservation"
    )
