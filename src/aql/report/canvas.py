"""A picture to draw on, pixel by pixel: a thousand frames of a film are drawn in seconds."""

import functools
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font

Colour = tuple[int, int, int]


class Canvas:
    """[H, W, 3] uint8 in `pixels`. x goes to the right, y down; what is outside is cut off."""

    def __init__(self, width: int, height: int, colour: Colour) -> None:
        self.pixels = np.full((height, width, 3), colour, np.uint8)

    def copy(self) -> "Canvas":
        """Another one with the same picture."""
        other = object.__new__(Canvas)
        other.pixels = self.pixels.copy()
        return other

    def box(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """A filled rectangle, its edges rounded to pixels."""
        left, top = max(0, round(x)), max(0, round(y))
        self.pixels[top : max(top, round(y + height)), left : max(left, round(x + width))] = colour

    def picture(self, x: int, y: int, pixels: np.ndarray) -> None:
        """Another picture [h, w, 3], with its upper left corner at a point."""
        self.pixels[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels

    def text(
        self, x: float, y: float, words: str, size: int, colour: Colour, align: Literal["left", "right"] = "left"
    ) -> float:
        """Words on the line y, that begin or end at x; where they end, or begin."""
        alpha, descent = _ink(words, size)
        height, width = alpha.shape
        left, top = round(x) - (width if align == "right" else 0), round(y) + descent - height
        cut = alpha[max(0, -top) :, max(0, -left) :, None]
        left, top = max(0, left), max(0, top)
        under = self.pixels[top : top + cut.shape[0], left : left + cut.shape[1]]
        cut = cut[: under.shape[0], : under.shape[1]]
        under[:] = (under + cut * (np.array(colour) - under)).round().astype(np.uint8)
        return left if align == "right" else left + width


@functools.lru_cache(maxsize=4096)
def _ink(words: str, size: int) -> tuple[np.ndarray, int]:
    """[h, w] how much of each pixel is covered, 0 to 1; and how far that reaches below the line."""
    font = _font()
    font.set_size(size, 72)
    font.set_text(words)
    font.draw_glyphs_to_bitmap(antialiased=True)
    return np.array(font.get_image(), np.float32) / 255, -(-font.get_descent() // 64)


@functools.cache
def _font() -> FT2Font:
    return FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"))
