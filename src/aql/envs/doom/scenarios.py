"""ViZDoom's own scenarios by their Gymnasium ids: `VizdoomDeathmatch-v1?observe=screen&bound=10&frame_skip=4`."""

import copy
import functools
import importlib
from typing import Any

import gymnasium

from aql.envs import gym, ids
from aql.envs.doom.process import EngineDiedError, GameProcess, load_vizdoom
from aql.envs.serial import RenderedEnv
from aql.envs.threaded import ThreadedVector
from aql.errors import UserError

PREFIXES = ("Vizdoom", "vizdoom.gymnasium_wrapper:Vizdoom")


class Scenario(gymnasium.Wrapper):
    """Mends some of ViZDoom's habits.

    It calls a time limit a termination as well; here it is a time limit alone. Its `render_fps` are tics, of which a
    step may take several. Its engine leaves files in the current folder; here they are in one that goes with it. And
    where its engine dies it raises; here the episode ends as by a time limit, and the next one has a new process.
    """

    def __init__(self, build: gym.Build, **options: Any) -> None:
        env = build(**options)
        super().__init__(env)
        tics = env.get_wrapper_attr("frame_skip")
        self.metadata = env.metadata | {"render_fps": env.metadata["render_fps"] / tics}
        self._observation: Any = None  # the latest
        self._picture: Any = None

        def replace_game() -> Any:
            base: Any = env.unwrapped
            base.game = build(**options).get_wrapper_attr("game")
            return base.game

        self.process = GameProcess(replace_game)

    @property
    def restarts(self) -> int:
        """How many game processes died and were replaced."""
        return self.process.restarts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; the first one starts the game."""
        self._observation, info = self.process.begin(lambda: self.env.reset(seed=seed, options=options))
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, ended by what ended it."""
        try:
            self._observation, reward, terminated, truncated, info = self.process.step(lambda: self.env.step(action))
        except EngineDiedError as error:
            return copy.deepcopy(self._observation), 0.0, False, True, {"engine_died": str(error)}
        return self._observation, reward, terminated and not truncated, truncated, info

    def render(self) -> Any:
        """What the game shows, or a dead one last did."""
        if self.process.game is not None:
            self._picture = self.env.render()
        return self._picture

    def close(self) -> None:
        """Ends the game and removes its files."""
        self.process.close()
        super().close()


def make(env_id: str, num_envs: int, num_threads: int | None = None) -> ThreadedVector:
    """The vector for one of ViZDoom's ids."""
    build = builder(env_id)
    envs = [gym.GymEnv(build()) for _ in range(num_envs)]
    return ThreadedVector(envs, num_threads)


def make_rendered(env_id: str) -> RenderedEnv:
    """One scenario that can be filmed."""
    return RenderedEnv(gym.GymEnv(builder(env_id)(render_mode="rgb_array")))


def builder(env_id: str) -> gym.Build:
    """What to call for one scenario."""
    load_vizdoom()
    tics = ids.split(env_id)[1].get("frame_skip", 1)
    if type(tics) is not int or tics < 1:
        raise UserError(f"frame_skip is {tics!r}: expected a whole number of tics, 1 or more")
    importlib.import_module("vizdoom.gymnasium_wrapper")  # which registers the ids
    build = gym.builder(env_id)
    return functools.partial(Scenario, build)
