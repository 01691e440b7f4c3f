"""Mazes as maps of Doom: walls that close, textures that exist."""

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import vizdoom

from aql.envs.doom import maps
from aql.envs.doom.levels import LEVELS, random_maze
from aql.envs.doom.maps import Maze, Place, Theme, Thing, Wall

RING = Maze(("*****", "*P G*", "* * *", "*GP *", "*****"))


def test_walls_of_a_ring_by_hand() -> None:
    outer = {
        Wall(1, 1, 1, 4),
        Wall(1, 4, 4, 4),
        Wall(4, 4, 4, 1),
        Wall(4, 1, 1, 1),
    }  # clockwise: the inside is right
    pillar = {Wall(2, 2, 3, 2), Wall(3, 2, 3, 3), Wall(3, 3, 2, 3), Wall(2, 3, 2, 2)}  # and here the outside
    assert len(RING.walls) == 8
    assert set(RING.walls) == outer | pillar


def test_places_are_centres_of_cells_with_north_up() -> None:
    assert RING.spawns == [Place(192, 448), Place(320, 192)]
    assert RING.objects == [Place(448, 448), Place(192, 192)]


def test_rooms_that_touch_at_a_corner_stay_apart() -> None:
    walls = Maze(("****", "*P**", "**G*", "****")).walls
    assert len(walls) == 8
    assert sum(wall[:2] == (2, 2) for wall in walls) == sum(wall[2:] == (2, 2) for wall in walls) == 2


@pytest.mark.parametrize("name", LEVELS)
def test_walls_of_random_mazes_close_and_part_open_from_solid(name: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(100):
        maze = random_maze(LEVELS[name], rng)
        height = len(maze.rows)

        def is_open(x: float, y: float, maze: Maze = maze, height: int = height) -> bool:
            return maze.rows[height - 1 - int(y)][int(x)] != "*"

        begins, ends = Counter(w[:2] for w in maze.walls), Counter(w[2:] for w in maze.walls)
        assert begins == ends  # at every corner as many walls begin as end: they are closed loops
        units = 0
        for x1, y1, x2, y2 in maze.walls:
            length = abs(x2 - x1) + abs(y2 - y1)
            dx, dy = (x2 - x1) // length, (y2 - y1) // length
            assert abs(dx) + abs(dy) == 1
            for i in range(length):
                x, y = x1 + (i + 0.5) * dx, y1 + (i + 0.5) * dy
                assert is_open(x + 0.5 * dy, y - 0.5 * dx)  # on its right
                assert not is_open(x - 0.5 * dy, y + 0.5 * dx)
            units += length
        sides = ((1, 0), (-1, 0), (0, 1), (0, -1))
        cells = [(x, y) for x in range(height) for y in range(height) if is_open(x, y)]
        assert units == sum(not is_open(x + dx, y + dy) for x, y in cells for dx, dy in sides)


def test_textmap_by_hand() -> None:
    theme = Theme("BRICK7", "FLAT1", "CEIL1_1")
    text = maps.textmap(RING, theme, [Thing(1, RING.spawns[0], angle=90), Thing(20_001, RING.objects[0])])
    blocks = Counter(line.partition("{")[0] for line in text.splitlines())
    assert blocks == {'namespace="zdoom";': 1, "vertex": 8, "linedef": 8, "sidedef": 8, "sector": 1, "thing": 2}
    assert "thing{x=192.0;y=448.0;type=1;angle=90;" in text
    assert "thing{x=448.0;y=448.0;type=20001;angle=0;" in text
    assert text.count('texturemiddle="BRICK7"') == 8


def test_pwad_has_a_directory_of_its_lumps() -> None:
    data = maps.pwad([("MAP01", b""), ("TEXTMAP", b"abc"), ("ENDMAP", b"")])
    assert data[:4] == b"PWAD"
    assert _lumps(data) == [("MAP01", b""), ("TEXTMAP", b"abc"), ("ENDMAP", b"")]


def test_the_game_has_every_texture_of_the_themes() -> None:
    lumps = _lumps((Path(vizdoom.__file__).parent / "freedoom2.wad").read_bytes())
    textures = dict(lumps)["TEXTURE1"]
    (count,) = struct.unpack_from("<i", textures)
    offsets = struct.unpack_from(f"<{count}i", textures, 4)
    walls = {textures[offset : offset + 8].rstrip(b"\0").decode() for offset in offsets}
    names = [name for name, _ in lumps]
    flats = set(names[names.index("F_START") : names.index("F_END")])
    assert set(maps.WALLS) <= walls
    assert set(maps.FLOORS) | set(maps.CEILINGS) <= flats


def _lumps(wad: bytes) -> list[tuple[str, bytes]]:
    count, directory = struct.unpack_from("<ii", wad, 4)
    entries = [struct.unpack_from("<ii8s", wad, directory + 16 * i) for i in range(count)]
    return [(name.rstrip(b"\0").decode(), wad[offset : offset + size]) for offset, size, name in entries]
