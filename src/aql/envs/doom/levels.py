"""The levels: explore a maze that is new in every episode, for a goal or for many objects.

They follow the two first-person levels of the paper. There an episode is 90 seconds of 60 frames and an action is held
for 4 frames, which makes 1350 actor steps. Doom counts 35 tics a second, but time is what we call it: one tic stands
for one frame, so that the action repeat and the number of steps are those of the paper, and a walk of 1350 steps is
5400 tics. An agent at full speed passes a cell in 16 tics (8 1/3 of 128 units a tic).
"""

import dataclasses
from typing import Any

import gymnasium
import numpy as np

from aql.envs.doom import actions, engine, maps
from aql.envs.doom.process import EngineDiedError
from aql.errors import UserError, unknown


@dataclasses.dataclass(frozen=True)
class Level:
    """What there is to find, and where."""

    thing: int  # what lies in the maze
    reward: float  # for each that is picked up
    share: float  # of the places for objects that have one; 0 is a single one
    size: int = 11  # cells of the maze's side, with its outer walls
    max_rooms: int = 4
    simplify: bool = True  # no dead ends
    steps: int = 1350


LEVELS = {
    "explore_goal_locations_small": Level(engine.GOAL, reward=10, share=0),
    "explore_object_locations_small": Level(engine.OBJECT, reward=1, share=0.5),
    # One room and a corridor, and 30 seconds: something to learn on two cores.
    "explore_goal_locations_tiny": Level(
        engine.GOAL, reward=10, share=0, size=7, max_rooms=1, simplify=False, steps=450
    ),
}
METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # 60 frames a second, 4 a step


class ExploreEnv(gymnasium.Env[np.ndarray, Any]):
    """A level as a Gymnasium environment.

    Picking up the goal, or the last object, puts the agent at a random spawn of the same maze, with everything in place
    again; the episode goes on to its time limit. Layout, theme, goal and spawns are functions of the seed.

    An episode whose game process dies ends as by a time limit, and the next one has a new process: see `restarts`.

    Args:
      level: a name in `LEVELS`.
      action_set: `full`, seven sub-actions, or `curated`, eleven composite actions.
      resolution: of the observation, in pixels of its side.
      render_mode: None or `rgb_array`, which shows what the agent sees.
    """

    metadata = METADATA

    def __init__(
        self, level: str, action_set: str = "full", resolution: int = 84, render_mode: str | None = None
    ) -> None:
        if level not in LEVELS:
            raise unknown("level", level, LEVELS, f"levels are {', '.join(LEVELS)}")
        if render_mode not in (None, *METADATA["render_modes"]):
            raise UserError(f"render_mode is {render_mode!r}: expected rgb_array or None")
        self._level = LEVELS[level]
        self.action_space = actions.space(action_set)
        self.metadata = METADATA | {"action_names": actions.NAMES[action_set]}
        self.engine = engine.Engine(resolution)
        self.observation_space = gymnasium.spaces.Box(0, 255, (resolution, resolution, 3), np.uint8)
        self.render_mode = render_mode
        self._frame = np.zeros((resolution, resolution, 3), np.uint8)
        self._steps = 0
        self._found = 0  # on this map so far

    @property
    def restarts(self) -> int:
        """How many game processes died and were replaced."""
        return self.engine.process.restarts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Makes a new maze and enters it."""
        super().reset(seed=seed)
        self.maze = random_maze(self._level, self.np_random)
        self.theme = maps.random_theme(self.np_random)
        places = self.maze.objects
        count = max(1, int(self._level.share * len(places)))
        chosen = self.np_random.choice(len(places), count, replace=False)
        self.places = [places[i] for i in sorted(chosen)]  # where the goal or the objects are
        self._steps = 0
        self._enter()
        return self._frame, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Holds the action for 4 tics."""
        self._steps += 1
        try:
            self._frame, found = self.engine.act(actions.buttons(action))
        except EngineDiedError as error:
            return self._frame.copy(), 0.0, False, True, {"engine_died": str(error)}
        reward = self._level.reward * (found - self._found)
        self._found = found
        if found == len(self.places):
            self._enter()
        return self._frame, reward, False, self._steps >= self._level.steps, {}

    def render(self) -> Any:
        """What the agent sees."""
        return self._frame if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Ends the game process."""
        self.engine.close()

    def _enter(self) -> None:
        """Puts the agent at a random spawn of the maze, and everything in place."""
        spawns = self.maze.spawns
        spawn = spawns[self.np_random.integers(len(spawns))]
        things = [maps.Thing(engine.PLAYER_START, spawn, int(self.np_random.integers(360)))]
        things += [maps.Thing(self._level.thing, place) for place in self.places]
        text = maps.textmap(self.maze, self.theme, things)
        self._frame = self.engine.play(text, seed=int(self.np_random.integers(1 << 31)))
        self._found = 0


def random_maze(level: Level, rng: np.random.Generator) -> maps.Maze:
    """A maze of labmaze with a place for the agent and one for an object."""
    import labmaze

    while True:
        drawn = labmaze.RandomMaze(
            height=level.size,
            width=level.size,
            max_rooms=level.max_rooms,
            room_min_size=3,
            room_max_size=5,
            extra_connection_probability=0.0,
            simplify=level.simplify,
            spawns_per_room=5,
            objects_per_room=4,
            random_seed=int(rng.integers(1 << 31)),
        )
        maze = maps.Maze(tuple(str(drawn.entity_layer).split("\n")[: level.size]))
        if maze.spawns and maze.objects:
            return maze
