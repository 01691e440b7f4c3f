"""The process of one of ViZDoom's games: started so that it ends with this one, watched, and replaced when it dies."""

import contextlib
import functools
import importlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aql.envs.doom import watchdog
from aql.errors import UserError

STARTS = 3  # times that an engine is started for one episode before it counts as broken
T = TypeVar("T")


class EngineDiedError(Exception):
    """The game's process was killed, crashed or hung. The next `GameProcess.begin` starts another."""


def load_vizdoom() -> Any:
    """ViZDoom, or one sentence about what to install."""
    try:
        importlib.import_module("labmaze")
        return importlib.import_module("vizdoom")
    except ModuleNotFoundError as error:
        raise UserError(f"doom levels need {error.name}: pip install 'aql[doom]'") from error
    except ImportError as error:  # the linker's words name the library
        raise UserError(f"ViZDoom cannot be loaded ({error}): {packages_for([str(error)])}") from error


def program() -> Path:
    """The engine."""
    return Path(load_vizdoom().__file__).parent / "vizdoom"


@functools.cache
def missing_libraries(executable: Path) -> list[str]:
    """The shared libraries that the linker does not find for a program; it lists them instead of running it."""
    environment = os.environ | {"LD_TRACE_LOADED_OBJECTS": "1"}
    listed = subprocess.run([executable], env=environment, capture_output=True, text=True, check=False, close_fds=False)
    return re.findall(r"(\S+) => not found", listed.stdout) + re.findall(r"libraries: (\S+?):", listed.stderr)


def packages_for(libraries: Sequence[str]) -> str:
    """What to install for libraries that are missing. Those with a hash in their names come with ViZDoom itself."""
    packages = {"libstdc++": "libstdc++6", "libgcc_s": "libgcc-s1", "libz": "zlib1g", "libSDL2": "libsdl2-2.0-0"}
    system = [library for library in libraries if not re.search(r"-[0-9a-f]{8}\.", library)]
    found = [package for name, package in packages.items() if any(name in library for library in system)]
    return f"on Debian, apt install {' '.join(found)}" if found else "pip install --force-reinstall vizdoom"


class GameProcess:
    """What runs a `DoomGame`. It starts with the first episode, and again when it has died.

    Each process has a game of its own: one whose engine died over the start of a map starts no other map.

    The engine's files are in a folder of its own: what it would write into the current one, and what is said of it.
    `pid` is its process id, `attempts` how often it was started until it was there, `ready` says that it is.
    """

    def __init__(self, make_game: Callable[[], Any]) -> None:
        vizdoom = load_vizdoom()
        self._make_game = make_game
        self.game: Any = None  # while there is a process
        self._errors = (
            vizdoom.ViZDoomErrorException,
            vizdoom.ViZDoomIsNotRunningException,
            vizdoom.ViZDoomUnexpectedExitException,
            vizdoom.MessageQueueException,
            vizdoom.SharedMemoryException,
        )
        self.folder = _make_folder()
        self._remove_folder = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.restarts = 0  # processes that died and were replaced

    @property
    def pid(self) -> int:
        """Of the engine."""
        return int((self.folder / "pid").read_text())

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a game's process cannot be copied")

    def begin(self, episode: Callable[[], T]) -> T:
        """Begins an episode, in a new process if there is none or it dies over it."""
        for _ in range(STARTS):
            try:
                with self._watched():
                    if self.game is None:
                        self._start()
                    return episode()
            except self._errors as error:
                died = error
                self._discard()
        remedy = "look for what kills it, such as a limit of memory"
        raise UserError(f"Doom's engine died {STARTS} times at the start of an episode ({died}): {remedy}")

    def step(self, act: Callable[[], T]) -> T:
        """Does something in a running episode; raises `EngineDiedError` if the process dies over it."""
        try:
            with self._watched():
                return act()
        except self._errors as error:
            self._discard()
            raise EngineDiedError(str(error)) from error

    def stop(self) -> None:
        """Ends the process; `begin` starts another."""
        if self.game is not None:
            # Closing waits for a process that hangs and lets no other thread run: a tic shows whether it still lives.
            with contextlib.suppress(*self._errors), self._watched():
                self.game.advance_action()
            self.game.close()
            self.game = None

    def close(self) -> None:
        """Ends the process and removes its files. Closing twice does nothing."""
        self.stop()
        self._remove_folder()

    def _watched(self) -> contextlib.AbstractContextManager[None]:
        return watchdog.watch(self.folder / "pid")

    def _discard(self) -> None:
        self.stop()
        self.restarts += 1

    def _start(self) -> None:
        # An engine that ends before the game has begun takes this process with it: ViZDoom crashes.
        if missing := missing_libraries(program()):
            raise UserError(f"Doom's engine does not start without {', '.join(missing)}: {packages_for(missing)}")
        script = write_launcher(self.folder)
        if not os.access(script, os.X_OK):
            raise UserError(f"programs cannot be run in {self.folder.parent}: set TMPDIR to a folder where they can")
        for name in ("ready", "pid"):
            (self.folder / name).unlink(missing_ok=True)
        self.game = self._make_game()
        self.game.set_vizdoom_path(str(script))
        self.game.init()
        # Both sides have them open: they go with the last process that does, however it ends.
        for kind in ("MQCtr", "MQDoom", "SM"):
            Path(f"/dev/shm/ViZDoom{kind}{self.game.get_instance_id()}").unlink(missing_ok=True)
        (self.folder / "ready").touch()
        self.restarts += int((self.folder / "attempts").read_text()) - 1


def write_launcher(folder: Path) -> Path:
    """A script in the folder that starts the engine so that it ends with this process, and not before.

    Ctrl-C in a terminal reaches children too: it is for this process to end what it started. And a killed one cannot
    end anything, so that the kernel has to, where it is Linux. An engine that dies before it is ready is started again
    behind ViZDoom's back, which would crash.
    """
    bound = "setpriv --pdeathsig KILL -- " if shutil.which("setpriv") else ""
    engine = shlex.quote(str(program()))
    script = folder / "launch.sh"
    script.write_text(f"""#!/bin/sh
case $1 in
attempts)
  shift
  exec 3>&2 2> /dev/null  # a shell tells which children were killed
  for attempt in $(seq {STARTS}); do
    echo $attempt > attempts
    {bound}./launch.sh once "$@"
    test -e ready && exit
  done
  echo "aql: Doom's engine ended {STARTS} times while it started" >&3 ;;
once)
  shift
  echo $$ > pid
  exec {engine} "$@" 2>&3 3>&- ;;
*)
  trap "" INT
  cd "$(dirname "$0")"
  exec {bound}./launch.sh attempts "$@" ;;
esac
""")
    script.chmod(0o700)
    return script


def _make_folder() -> Path:
    """Named after its owner, so that what a killed one has left can be told from what is in use."""
    prefix = f"aql-doom-{socket.gethostname()}-"
    _remove_left_folders(tempfile.gettempdir(), prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


@functools.cache  # once per process
def _remove_left_folders(parent: str, prefix: str) -> None:
    for folder in Path(parent).glob(f"{prefix}*-*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
