"""Plain shapes on an array of pixels."""

from typing import Any

import numpy as np

Colour = tuple[int, int, int]

WHITE, BLACK, GREY = (255, 255, 255), (0, 0, 0), (120, 120, 120)
BLUE, RED, GREEN = (50, 90, 200), (210, 60, 50), (110, 190, 110)


def metadata(frames_per_second: int) -> dict[str, Any]:
    """What Gymnasium wants to know about an environment's pictures."""
    return {"render_modes": ["rgb_array"], "render_fps": frames_per_second}


class Canvas:
    """A white picture of the rectangle from `low` to `high`, in the world's units; y points up."""

    def __init__(self, low: tuple[float, float], high: tuple[float, float], pixels_per_unit: float) -> None:
        width, height = (round((b - a) * pixels_per_unit) for a, b in zip(low, high, strict=True))
        # The world's coordinates of the pixels' centres: x [1, W], y [H, 1].
        self._x = low[0] + (np.arange(width)[None, :] + 0.5) / pixels_per_unit
        self._y = high[1] - (np.arange(height)[:, None] + 0.5) / pixels_per_unit
        self.pixels = np.full((height, width, 3), WHITE, np.uint8)  # [H, W, 3]

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """A filled circle around a point."""
        self.pixels[np.square(self._x - x) + np.square(self._y - y) <= radius**2] = colour

    def box(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """A filled rectangle whose lower left corner is a point."""
        inside_x, inside_y = abs(self._x - x - width / 2) <= width / 2, abs(self._y - y - height / 2) <= height / 2
        self.pixels[inside_x & inside_y] = colour
