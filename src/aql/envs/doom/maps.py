"""Mazes as maps that Doom's engine loads: labmaze's text grid -> walls -> a UDMF text in a PWAD.

The map is one sector, the open ground, and a linedef along every stretch of wall. The engine builds the nodes itself.
"""

import dataclasses
import itertools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

CELL = 128  # units of a cell's side: the period of the textures
CEILING = 128  # units above the floor

WALLS = (
    *("A-BRICK1", "A-CAMO1", "A-CONCTE", "A-MARBLE", "A-MOSBRI", "A-MYWOOD", "A-TILE", "BIGBRIK1", "BRICK10"),
    *("BRICK7", "COMPBLUE", "GRAY1", "GSTONE1", "METAL2", "PANEL2", "REDWALL", "ROCKRED1", "SILVER1", "STARGR2"),
    *("STARTAN3", "STUCCO1", "TANROCK2", "TEKGREN2", "WOOD1", "ZIMMER2"),
)
# Calm ones: those full of small contrasts are noise at 84x84.
FLOORS = (
    *("FLAT14", "FLAT22", "FLAT23", "FLAT8", "FLOOR0_3", "FLOOR1_1", "FLOOR1_6", "FLOOR4_8", "FLOOR5_3", "FLOOR5_4"),
    *("FLOOR7_1", "FLOOR7_2", "GRASS1", "RROCK01", "RROCK09", "SLIME15"),
)
CEILINGS = ("CEIL3_1", "CEIL3_3", "CEIL3_4", "CEIL3_5", "CEIL4_1", "CEIL5_1", "FLAT19", "FLAT3", "FLOOR0_1", "FLOOR6_1")


class Place(NamedTuple):
    """A cell's centre, in the map's units."""

    x: int
    y: int


class Wall(NamedTuple):
    """A linedef from (x1, y1) to (x2, y2), in cells. The open side is on its right."""

    x1: int
    y1: int
    x2: int
    y2: int


class Theme(NamedTuple):
    """Names of textures of the game's own data."""

    wall: str
    floor: str
    ceiling: str


@dataclasses.dataclass(frozen=True)
class Maze:
    """A grid of labmaze: `*` is a wall, `P` a place to spawn at, `G` a place for an object."""

    rows: tuple[str, ...]

    @property
    def spawns(self) -> list[Place]:
        """Where the agent may start."""
        return self._places("P")

    @property
    def objects(self) -> list[Place]:
        """Where a goal or an object may lie."""
        return self._places("G")

    @property
    def walls(self) -> list[Wall]:
        """Stretches of wall, as long as they go. North is up: y grows against the order of the rows."""
        open_ = np.pad(np.array([[cell != "*" for cell in row] for row in self.rows])[::-1], 1)
        horizontal = _stretches(open_[1:].astype(int) - open_[:-1])
        vertical = _stretches((open_[:, :-1].astype(int) - open_[:, 1:]).T)
        # Padding moved every boundary by one cell along the stretch; across it, boundary i lies before cell i.
        walls = []
        for y, start, end, sign in horizontal:
            # Open ground above lies on the right of a wall that runs west.
            walls.append(Wall(end - 1, y, start - 1, y) if sign > 0 else Wall(start - 1, y, end - 1, y))
        for x, start, end, sign in vertical:
            # Open ground to the west lies on the right of a wall that runs south.
            walls.append(Wall(x, end - 1, x, start - 1) if sign > 0 else Wall(x, start - 1, x, end - 1))
        return walls

    def _places(self, token: str) -> list[Place]:
        height = len(self.rows)
        return [
            Place(CELL * x + CELL // 2, CELL * (height - 1 - row) + CELL // 2)
            for row, cells in enumerate(self.rows)
            for x, cell in enumerate(cells)
            if cell == token
        ]


def _stretches(change: np.ndarray) -> list[tuple[int, int, int, int]]:
    """(line, start, end, sign) of every run of equal non-zero entries in the rows of an array."""
    found = []
    for line, row in enumerate(change):
        edges = np.flatnonzero(np.diff(row, prepend=0, append=0))
        found += [(line, int(a), int(b), int(row[a])) for a, b in itertools.pairwise(edges) if row[a]]
    return found


def random_theme(rng: np.random.Generator) -> Theme:
    """Wall, floor and ceiling, each drawn by itself."""
    return Theme(*(str(rng.choice(names)) for names in (WALLS, FLOORS, CEILINGS)))


class Thing(NamedTuple):
    """Something on the map."""

    number: int  # its type, as map editors have it
    place: Place
    angle: int = 0  # degrees from east, counter-clockwise


def textmap(maze: Maze, theme: Theme, things: Sequence[Thing]) -> str:
    """The map in UDMF, the engine's text format."""
    walls = maze.walls
    corners = {corner: i for i, corner in enumerate(dict.fromkeys(c for w in walls for c in (w[:2], w[2:])))}
    blocks = [_block("vertex", x=f"{CELL * x}.0", y=f"{CELL * y}.0") for x, y in corners]
    blocks += [_block("linedef", v1=corners[w[:2]], v2=corners[w[2:]], sidefront=i) for i, w in enumerate(walls)]
    blocks += [_block("sidedef", sector=0, texturemiddle=f'"{theme.wall}"') for _ in walls]
    blocks.append(
        _block(
            "sector",
            heightceiling=CEILING,
            texturefloor=f'"{theme.floor}"',
            textureceiling=f'"{theme.ceiling}"',
            lightlevel=200,
        )
    )
    always = dict.fromkeys(("skill1", "skill2", "skill3", "skill4", "skill5", "single", "coop", "dm"), "true")
    for number, (x, y), angle in things:
        blocks.append(_block("thing", x=f"{x}.0", y=f"{y}.0", type=number, angle=angle, **always))
    return 'namespace="zdoom";\n' + "\n".join(blocks)


def _block(kind: str, **fields: Any) -> str:
    return f"{kind}{{{''.join(f'{name}={value};' for name, value in fields.items())}}}"


def pwad(lumps: Sequence[tuple[str, bytes]]) -> bytes:
    """A patch WAD: a header, the lumps one after the other, and a directory of their places."""
    body = b"".join(data for _, data in lumps)
    header_size = 12
    directory, offset = b"", header_size
    for name, data in lumps:
        directory += struct.pack("<ii8s", offset, len(data), name.encode())
        offset += len(data)
    return struct.pack("<4sii", b"PWAD", len(lumps), header_size + len(body)) + body + directory
