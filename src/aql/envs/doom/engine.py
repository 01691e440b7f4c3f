"""Doom's engine as the levels use it: one process per engine, that plays one map which is rewritten in place."""

import contextlib
import importlib
import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aql.envs.doom import maps, watchdog
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


class EngineDiedError(Exception):
    """The game's process was killed, crashed or hung. `Engine.play` starts another."""


def load_vizdoom() -> Any:
    """ViZDoom, or one sentence about what to install."""
    try:
        importlib.import_module("labmaze")
        return importlib.import_module("vizdoom")
    except ModuleNotFoundError as error:
        raise UserError(f"doom levels need {error.name}: pip install 'aql[doom]'") from error
    except ImportError as error:  # the linker's words name the library
        raise UserError(f"ViZDoom cannot be loaded ({error}): {packages_for([str(error)])}") from error


def missing_libraries(executable: Path) -> list[str]:
    """The shared libraries that the linker does not find for a program; it lists them instead of running it."""
    environment = os.environ | {"LD_TRACE_LOADED_OBJECTS": "1"}
    listed = subprocess.run([executable], env=environment, capture_output=True, text=True, check=False, close_fds=False)
    return re.findall(r"(\S+) => not found", listed.stdout) + re.findall(r"libraries: (\S+?):", listed.stderr)


def packages_for(libraries: Sequence[str]) -> str:
    """What to install on Debian for libraries that are missing."""
    packages = {"libstdc++": "libstdc++6", "libgcc_s": "libgcc-s1", "libz": "zlib1g", "libSDL2": "libsdl2-2.0-0"}
    found = [package for name, package in packages.items() if any(name in library for library in libraries)]
    return f"on Debian, apt install {' '.join(found)}" if found else "pip install --force-reinstall vizdoom"


def write_launcher(folder: Path) -> Path:
    """A script in the folder that starts the engine so that it ends with this process, and not before.

    Ctrl-C in a terminal reaches children too: it is for this process to end what it started. And a killed one cannot
    end anything, so that the kernel has to, where it is Linux. What the engine writes into the current folder goes
    into this one; there it leaves its process id, too.
    """
    program = Path(load_vizdoom().__file__).parent / "vizdoom"
    bound = "setpriv --pdeathsig KILL -- " if shutil.which("setpriv") else ""
    script = folder / "launch.sh"
    lines = ["#!/bin/sh", 'trap "" INT', 'cd "$(dirname "$0")"', "echo $$ > pid"]
    lines.append(f'exec {bound}{shlex.quote(str(program))} "$@"')
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o700)
    return script


class Engine:
    """One game process. It is started when the first map is played, and again when it has died.

    The picture is cut out of the middle of the engine's screen, with the field of view so wide that the cut spans
    90 degrees, and blocks of pixels are averaged where the resolution is small enough: nothing is resampled.
    """

    def __init__(self, resolution: int) -> None:
        if not 8 <= resolution <= SCREEN_HEIGHT:
            raise UserError(f"resolution is {resolution}: expected 8 to {SCREEN_HEIGHT} pixels")
        self._vizdoom = load_vizdoom()
        self._resolution = resolution
        self._block = SCREEN_HEIGHT // resolution
        cut = self._block * resolution
        top, left = (SCREEN_HEIGHT - cut) // 2, (SCREEN_WIDTH - cut) // 2
        self._cut = np.s_[top : top + cut, left : left + cut]
        wide = SCREEN_WIDTH / cut * math.tan(math.radians(FIELD_OF_VIEW / 2))
        self._screen_view = math.degrees(2 * math.atan(wide))
        self.game: Any = None
        self._pid = 0  # of the game's process
        self._folder = tempfile.TemporaryDirectory(prefix="aql-doom-")
        self._wad = Path(self._folder.name) / "maze.wad"
        self.restarts = 0  # processes that died and were replaced

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
        if self.game is not None:
            try:
                with watchdog.watch(self._pid):
                    return self._begin(seed)
            except self._errors:
                self._discard()
        self.game = self._start()
        return self._begin(seed)

    def act(self, buttons: Sequence[float]) -> tuple[np.ndarray, int]:
        """Holds the buttons for an actor step; the picture and how many things have been picked up on this map."""
        try:
            with watchdog.watch(self._pid):
                # Numbers of numpy's types would be ignored without a word.
                self.game.make_action([float(value) for value in buttons], TICS)
                return self._look(), int(self.game.get_game_variable(self._vizdoom.GameVariable.ITEMCOUNT))
        except self._errors as error:
            self._discard()
            raise EngineDiedError(str(error)) from error

    @property
    def pose(self) -> tuple[float, float, float]:
        """Where the agent is, in the map's units, and where it looks: degrees from east, counter-clockwise."""
        variables = self._vizdoom.GameVariable
        names = (variables.POSITION_X, variables.POSITION_Y, variables.ANGLE)
        x, y, angle = (float(self.game.get_game_variable(name)) for name in names)
        return x, y, angle

    @property
    def instance_id(self) -> str:
        """What the process has in its command line, and no other one has."""
        return str(self.game.get_instance_id())

    def stop(self) -> None:
        """Ends the process; `play` starts another."""
        if self.game is not None:
            # Closing waits for a process that hangs and lets no other thread run: a tic shows whether it still lives.
            with contextlib.suppress(*self._errors), watchdog.watch(self._pid):
                self.game.advance_action()
            self.game.close()
            self.game = None

    def close(self) -> None:
        """Ends the process and removes its files. Closing twice does nothing."""
        self.stop()
        self._folder.cleanup()

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        vizdoom = self._vizdoom
        return (
            vizdoom.ViZDoomErrorException,
            vizdoom.ViZDoomIsNotRunningException,
            vizdoom.ViZDoomUnexpectedExitException,
            vizdoom.MessageQueueException,
            vizdoom.SharedMemoryException,
        )

    def _start(self) -> Any:
        """A new game process."""
        vizdoom = self._vizdoom
        package = Path(vizdoom.__file__).parent
        game = vizdoom.DoomGame()
        game.set_vizdoom_path(str(write_launcher(Path(self._folder.name))))
        game.set_doom_game_path(str(package / "freedoom2.wad"))  # and not a Doom that lies in the current folder
        game.set_doom_scenario_path(str(self._wad))
        game.set_doom_map("MAP01")
        game.set_doom_config_path(str(Path(self._folder.name) / "engine.ini"))
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        for part in _HIDDEN:
            getattr(game, f"set_render_{part}")(False)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in BUTTONS])
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_episode_timeout(0)  # the levels count their own steps
        try:
            game.init()
        except self._errors as error:
            game.close()
            missing = missing_libraries(package / "vizdoom")
            remedy = packages_for(missing)
            raise UserError(f"Doom's engine does not start ({', '.join(missing) or error}): {remedy}") from error
        self._pid = int((Path(self._folder.name) / "pid").read_text())
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

    def _discard(self) -> None:
        self.stop()
        self.restarts += 1
