"""The library in one class, familiar to whoever knows Stable-Baselines3."""

import copy
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from aql import compile_cache, envs, nested, runs
from aql.agents.base import ActorState, EnvSpec, Mode
from aql.config import Config
from aql.envs.base import TimeStep, VectorEnv, no_masks
from aql.envs.gym_vector import GymVector
from aql.errors import UserError
from aql.evaluation import Evaluator
from aql.metrics import Progress
from aql.presets import preset
from aql.runtime import checkpoint, seeding
from aql.runtime.actor import jit_act
from aql.runtime.local import Result, Trainer, signals_into

Environment = str | gymnasium.Env | gymnasium.vector.VectorEnv | Callable[[], gymnasium.Env]
Callback = Callable[[dict[str, Any]], bool | None]


class AQL:
    """An agent that learns in an environment with any action space.

    Args:
      env: an id (`control/walker-walk`, `CartPole-v1`), a function that makes a Gymnasium environment, or one
        environment. Each actor needs its own: an instance is copied, by `copy.deepcopy` or, where that cannot be,
        made again by its registered spec.
        Or a vector environment: its environments are the actors.
      agent: which agent, see `aql.AGENTS`.
      preset: what the settings start from, `fast` or `paper`.
      seed: of everything random.
      settings: any field of `Config`.
    """

    def __init__(
        self, env: Environment, *, agent: str = "aql", preset: str = "fast", seed: int = 0, **settings: Any
    ) -> None:
        compile_cache.enable()
        if isinstance(env, gymnasium.vector.VectorEnv):
            settings = {"actors": env.num_envs} | settings
        make, name = _maker(env)
        self.config = _config(preset, agent, seed, name, settings)
        self._make_env = lambda count: envs.repeated(make(count), self.config.action_repeat)
        if self.config.workers:
            raise UserError(
                f"workers is {self.config.workers}: here actors and learner share a process; use `aql train`"
            )
        self._env = self._make_env(self.config.actors)
        self._eval_env = self._make_env(self.config.eval_episodes)
        if EnvSpec.of(self._env) != EnvSpec.of(self._eval_env):
            raise UserError("the environments for training and evaluation have different spaces: make equal ones")
        self._trainer = Trainer.in_process(self.config, self._env, self._eval_env)
        self._act = jit_act(self._trainer.agent)
        self._key = seeding.key(seed, "predict")
        self._explorations = 0
        self._actor_states: dict[int, ActorState] = {}  # by the size of the batch

    @property
    def actor_steps(self) -> int:
        """Steps learned from, all actors together."""
        return self._trainer.actor.steps

    def learn(self, steps: int, callback: Callback | None = None, progress: bool = True) -> "AQL":
        """Trains for `steps` more steps of all actors together.

        The callback gets each line of metrics, with `actor_steps` in it, and ends training by returning False.
        """
        end = self.actor_steps + steps
        going_on = True

        def report(actor_steps: int, **metrics: Any) -> None:
            nonlocal going_on
            if callback is not None and callback({"actor_steps": actor_steps, **metrics}) is False:
                going_on = False

        stopped = threading.Event()
        with Progress(end, self.actor_steps, quiet=not progress) as line, signals_into(stopped):
            while self.actor_steps < end and going_on and not stopped.is_set():
                self._trainer.step(report)
                result = self._trainer.result
                line.update(self.actor_steps, self._trainer.recent_return, result.mean if result else None)
        if stopped.is_set():
            raise KeyboardInterrupt
        return self

    def predict(
        self,
        observation: Any,
        deterministic: bool = True,
        action_masks: Any = None,
        first: Any = False,
        reward: Any = 0.0,
    ) -> Any:
        """The action for one observation, or a batch of actions for a batch, as the environment takes them.

        Deterministic means greedy, and the same for the same observation, unless averages of the critics take turns
        (`greedy_averages`): then for the same observation and number of the call. Otherwise the agent explores as its
        first actor does. `action_masks` is what the environment allows now, in any form that it may give it itself; for
        a batch, one for each, or stacked leaf by leaf.

        An agent with a memory remembers from call to call, for each size of batch apart. `first` says where an episode
        begins, so that it forgets; `reward` is that of the action before, for `see_last_action`.
        """
        batch, one = self._env.observations.batch(observation)
        agent, size = self._trainer.agent, len(batch)
        if action_masks is None:
            masks = no_masks(size)
        else:
            given = [action_masks] if one else action_masks
            if isinstance(given, dict):
                given = [nested.row(given, i) for i in range(size)]
            masks = np.stack([self._env.action_space.mask_from_env(mask) for mask in given])
            if len(masks) != size:
                raise UserError(f"there are {len(masks)} action masks for {size} observations: one for each is needed")
        begins, earned = np.broadcast_to(np.asarray(first, bool), size), np.broadcast_to(np.float32(reward), size)
        now = TimeStep(batch, earned, np.ones(size, np.float32), begins, np.zeros(size, bool), masks)
        mode: Mode = "greedy" if deterministic else "explore"
        if size not in self._actor_states:
            self._actor_states[size] = agent.init_actors(np.zeros(size, int), self.config.actors)
        decision, self._actor_states[size] = self._act(
            self._trainer.learner.params,
            self._actor_states[size],
            self._key,
            np.uint32(0 if deterministic else self._explorations),
            now,
            mode=mode,
        )
        self._explorations += not deterministic
        action = np.asarray(decision.action)
        return agent.space.to_env(action[0] if one else action)

    def evaluate(self, episodes: int = 10, seed: int = 1_000_003) -> Result:
        """The greedy policy's return over whole episodes on environments of their own."""
        env = self._make_env(episodes)
        returns = Evaluator(self._trainer.agent, env, seed).evaluate(self._trainer.learner.params)
        env.close()
        trainer = self._trainer
        return Result(float(np.mean(returns)), float(np.std(returns)), episodes, self.actor_steps, trainer.seconds)

    def close(self) -> None:
        """Closes the environments; nothing can be learned after it, but `predict` still works."""
        self._env.close()
        self._eval_env.close()

    def save(self, path: str | Path) -> None:
        """Writes a folder with everything that `load` and more learning need."""
        folder = Path(path)
        if folder.exists() and not (folder / checkpoint.MANIFEST).exists():
            raise UserError(f"{folder} exists and is no saved agent: it is not overwritten; choose another name")
        self._trainer.save(folder, config=json.loads(json.dumps(self.config.to_json())))


def load(path: str | Path, env: Environment | None = None) -> AQL:
    """What `AQL.save` wrote, or the folder of a run. The environment is needed unless it was given by its id."""
    folder = Path(path)
    if (folder / runs.CONFIG).is_file():
        config = runs.read_config(folder)
        arrays, meta = checkpoint.load_latest(folder)
    else:
        arrays, meta = checkpoint.load(folder)
        if "config" not in meta:
            raise UserError(f"{folder} is a checkpoint of a run: load the run's own folder, {folder.parents[1]}")
        config = Config.from_json(meta["config"])
    if env is None and config.env == UNNAMED:
        raise UserError(f"{path} was trained on an environment without an id: pass it, load(path, env)")
    settings = {k: v for k, v in config.to_json().items() if k not in ("env", "agent", "preset", "seed", "workers")}
    model = AQL(
        config.env if env is None else env, agent=config.agent, preset=config.preset, seed=config.seed, **settings
    )
    model._trainer.load(arrays, meta)
    return model


UNNAMED = "python"


def _config(preset_name: str, agent: str, seed: int, env: str, settings: dict[str, Any]) -> Config:
    return preset(preset_name, env=env, agent=agent, seed=seed, **settings)


def _maker(env: Environment) -> tuple[Callable[[int], VectorEnv], str]:
    """How to make a vector of the environment, and the id by which it can be made again."""
    if isinstance(env, str):
        return lambda count: envs.make(env, count), env
    if isinstance(env, gymnasium.Env):
        return lambda count: envs.from_envs([_copy(env) for _ in range(count)]), UNNAMED
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _from_vector(env), UNNAMED
    if callable(env):
        return lambda count: envs.from_envs([env() for _ in range(count)]), UNNAMED
    raise UserError(f"the environment is {env!r}: expected an id, a gymnasium.Env or a function that makes one")


def _copy(env: gymnasium.Env) -> gymnasium.Env:
    """Another one like it. A copy has all that was changed since it was made; what cannot be copied is made anew."""
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever an object raises that cannot be copied
        try:
            return gymnasium.make(env.spec)  # type: ignore[arg-type]  # None is refused as well
        except Exception:
            raise UserError(
                f"{env} can neither be copied ({error}) nor made again: pass a function that makes it"
            ) from error


def _from_vector(env: gymnasium.vector.VectorEnv) -> Callable[[int], VectorEnv]:
    """The vector itself for the actors, which ask first; others like it, for evaluation, after that."""
    if isinstance(env, gymnasium.vector.VectorWrapper):
        raise UserError(
            f"{env} wraps a vector, and evaluation would go without: wrap each environment instead, as in "
            "SyncVectorEnv([lambda: Wrapper(make()) for _ in range(8)])"
        )
    unused = [env]

    def make(count: int) -> VectorEnv:
        if unused and count == env.num_envs:
            return GymVector(unused.pop())
        if unused:
            raise UserError(f"actors is {count}: the vector environment has {env.num_envs}, and each is an actor")
        if hasattr(env, "env_fns"):
            return envs.from_envs([env.env_fns[i % env.num_envs]() for i in range(count)])
        if env.spec is not None:
            options = {k: v for k, v in env.spec.kwargs.items() if k not in ("num_envs", "vectorization_mode")}
            return envs.from_envs([gymnasium.make(env.spec.id, **options) for _ in range(count)])
        raise UserError(f"{env} cannot be copied for evaluation: make it with gymnasium.make_vec or SyncVectorEnv")

    return make
