"""ViZDoom's own scenarios by their Gymnasium ids: `VizdoomDeathmatch-v1?observe=screen&bound=10&frame_skip=4`."""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import gymnasium

from aql.envs import gym
from aql.envs.doom.engine import load_vizdoom, write_launcher
from aql.envs.serial import RenderedEnv
from aql.envs.threaded import ThreadedVector

PREFIXES = ("Vizdoom", "vizdoom.gymnasium_wrapper:Vizdoom")


class Scenario(gymnasium.Wrapper):
    """Mends three of ViZDoom's habits.

    It calls a time limit a termination as well; here it is a time limit alone. Its `render_fps` are tics, of which a
    step may take several. And its engine leaves files in the current folder; here they are in one that goes with it.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        tics = env.get_wrapper_attr("frame_skip")
        self.metadata = env.metadata | {"render_fps": env.metadata["render_fps"] / tics}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; the first one starts the game."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="aql-doom-")
            self.get_wrapper_attr("game").set_vizdoom_path(str(write_launcher(Path(self._folder.name))))
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, ended by what ended it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated and not truncated, truncated, info

    def close(self) -> None:
        """Ends the game and removes its files."""
        super().close()
        if self._folder is not None:
            self._folder.cleanup()


def make(env_id: str, num_envs: int, num_threads: int | None = None) -> ThreadedVector:
    """The vector for one of ViZDoom's ids."""
    build = builder(env_id)
    envs = [gym.GymEnv(build()) for _ in range(num_envs)]
    return ThreadedVector(envs, num_threads, envs[0].observations)


def make_rendered(env_id: str) -> RenderedEnv:
    """One scenario that can be filmed."""
    return RenderedEnv(gym.GymEnv(builder(env_id)(render_mode="rgb_array")))


def builder(env_id: str) -> gym.Build:
    """What to call for one scenario."""
    load_vizdoom()
    importlib.import_module("vizdoom.gymnasium_wrapper")  # which registers the ids
    build = gym.builder(env_id)
    return lambda **options: Scenario(build(**options))
