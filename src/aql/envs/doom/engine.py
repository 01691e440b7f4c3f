"""Doom's engine as the levels use it: one process per engine, that plays one map which is rewritten in place."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aql.envs.doom import maps
from aql.envs.doom.process import GameProcess, load_vizdoom
from aql.errors import UserError

TICS = 4  # the action repeat: one tic of the engine stands for one frame of the paper's levels
FIELD_OF_VIEW = 90.0  # degrees, of the observation in both directions
SCREEN_WIDTH, SCREEN_HEIGHT = 160, 120  # the smallest screen that the engine has
BUTTONS = (
    *("TURN_LEFT_RIGHT_DELTA", "LOOK_UP_DOWN_DELTA", "MOVE_LEFT", "MOVE_RIGHT", "MOVE_BACKWARD", "MOVE_FORWARD"),
    *("ATTACK", "JUMP", "CROUCH"),
)
PLAYER_START, GOAL, OBJECT = 1, 20_001, 20_002  # numbers of things: Doom's own, and those of ACTORS
_HIDDEN = ("hud", "weapon", "crosshair", "decals", "particles", "messages", "corpses", "screen_flashes")
_MAP_BYTES = 1 << 16  # the largest map seen has 6 kB

# What is picked up is counted by the engine (COUNTITEM). The agent has no weapon, and can move at once.
_ACTORS = """
actor AqlThing : CustomInventory
{
  Radius 20
  Height 48
  +COUNTITEM
  +INVENTORY.ALWAYSPICKUP
  Inventory.PickupMessage ""
  States
  {
  Pickup:
    TNT1 A 0
    stop
  }
}
actor AqlGoal : AqlThing 20001
{
  Scale 2.0
  States
  {
  Spawn:
    SOUL A -1 bright
    stop
  }
}
actor AqlObject : AqlThing 20002
{
  Scale 1.5
  States
  {
  Spawn:
    PINV A -1 bright
    stop
  }
}
actor AqlPlayer : DoomPlayer
{
  ReactionTime 0
  Player.StartItem "Clip"
}
"""
_MAPINFO = """
gameinfo { playerclasses = "AqlPlayer" }
map MAP01 "maze" { allowjump allowcrouch }
"""


class Engine:
    """A game whose process is started when the first map is played, and again when it has died.

    The picture is cut out of the middle of the engine's screen, with the field of view so wide that the cut spans
    90 degrees, and blocks of pixels are averaged where the resolution is small enough: nothing is resampled.
    """

    def __init__(self, resolution: int) -> None:
        if not isinstance(resolution, int | np.integer) or not 8 <= resolution <= SCREEN_HEIGHT:
            raise UserError(f"resolution is {resolution!r}: expected 8 to {SCREEN_HEIGHT} pixels")
        self._vizdoom = load_vizdoom()
        self._resolution = resolution
        self._block = SCREEN_HEIGHT // resolution
        cut = self._block * resolution
        top, left = (SCREEN_HEIGHT - cut) // 2, (SCREEN_WIDTH - cut) // 2
        self._cut = np.s_[top : top + cut, left : left + cut]
        wide = SCREEN_WIDTH / cut * math.tan(math.radians(FIELD_OF_VIEW / 2))
        self._screen_view = math.degrees(2 * math.atan(wide))
        self.process = GameProcess(self._make_game)
        self._wad = self.process.folder / "maze.wad"

    def play(self, textmap: str, seed: int) -> np.ndarray:
        """Starts the map; the first picture.

        The engine reads the map's lump from the file whenever it starts the map, so that writing another one of the
        same size in its place is all that a new maze takes: no process is started, no file is reopened.
        """
        text = textmap.encode().ljust(_MAP_BYTES)
        assert len(text) == _MAP_BYTES, "the map is too large"
        lumps = [("DECORATE", _ACTORS.encode()), ("MAPINFO", _MAPINFO.encode())]
        lumps += [("MAP01", b""), ("TEXTMAP", text), ("ENDMAP", b"")]
        self._wad.touch()
        with self._wad.open("r+b") as file:
            file.write(maps.pwad(lumps))
        return self.process.begin(lambda: self._begin(seed))

    def act(self, buttons: Sequence[float]) -> tuple[np.ndarray, int]:
        """Holds the buttons for an actor step; the picture and how many things have been picked up on this map."""

        def hold() -> tuple[np.ndarray, int]:
            # Numbers of numpy's types would be ignored without a word.
            self.game.make_action([float(value) for value in buttons], TICS)
            return self._look(), int(self.game.get_game_variable(self._vizdoom.GameVariable.ITEMCOUNT))

        return self.process.step(hold)

    @property
    def pose(self) -> tuple[float, float, float]:
        """Where the agent is, in the map's units, and where it looks: degrees from east, counter-clockwise."""
        variables = self._vizdoom.GameVariable
        names = (variables.POSITION_X, variables.POSITION_Y, variables.ANGLE)
        x, y, angle = (float(self.game.get_game_variable(name)) for name in names)
        return x, y, angle

    def close(self) -> None:
        """Ends the process and removes its files. Closing twice does nothing."""
        self.process.close()

    @property
    def game(self) -> Any:
        """ViZDoom's `DoomGame`, while it runs."""
        return self.process.game

    def _make_game(self) -> Any:
        vizdoom = self._vizdoom
        game = vizdoom.DoomGame()
        # Not a Doom that lies in the current folder.
        game.set_doom_game_path(str(Path(vizdoom.__file__).parent / "freedoom2.wad"))
        game.set_doom_scenario_path(str(self._wad))
        game.set_doom_map("MAP01")
        game.set_doom_config_path(str(self.process.folder / "engine.ini"))
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        for part in _HIDDEN:
            getattr(game, f"set_render_{part}")(False)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in BUTTONS])
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_episode_timeout(0)  # the levels count their own steps
        return game

    def _begin(self, seed: int) -> np.ndarray:
        self.game.set_seed(seed)
        self.game.new_episode()  # also after a start, so that a map begins in one way only
        self.game.send_game_command(f"fov {self._screen_view}")
        # The engine widens its view by 7 degrees a tic.
        self.game.make_action([0.0] * len(BUTTONS), 1 + math.ceil((self._screen_view - 90) / 7))
        return self._look()

    def _look(self) -> np.ndarray:
        """[resolution, resolution, 3] uint8, in memory of its own."""
        cut = self.game.get_state().screen_buffer[self._cut]
        if self._block == 1:
            return np.ascontiguousarray(cut)
        n, k = self._resolution, self._block
        return cut.reshape(n, k, n, k, 3).mean(axis=(1, 3), dtype=np.float32).astype(np.uint8)
