"""A film of the greedy policy."""

from pathlib import Path
from typing import Any

import numpy as np

from aql import envs
from aql.errors import UserError
from aql.evaluation import Evaluator
from aql.runs import Restored

FRAMES_PER_SECOND = 50
MOST_FRAMES = 500  # ten seconds


def watch(restored: Restored, path: Path, seed: int = 0, height: int = 480, width: int = 640) -> float:
    """Plays one greedy episode, writes it as an MP4 and gives its return."""
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise UserError("films need imageio-ffmpeg: pip install 'aql[report]'") from error
    env = envs.make_rendered(restored.config.env)
    frames: list[np.ndarray] = []

    def draw(*_: Any) -> None:
        frames.append(env.render(height, width))

    evaluator = Evaluator(restored.agent, env, seed)
    (episode_return,) = evaluator.evaluate(restored.params, watch=draw)
    env.close()
    stride = -(-len(frames) // MOST_FRAMES)
    # Sides divisible by 16 suit every player; the codec would rescale others.
    path.parent.mkdir(parents=True, exist_ok=True)
    video = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=FRAMES_PER_SECOND,
        quality=7,
        macro_block_size=16,
        ffmpeg_log_level="error",
    )
    video.send(None)
    for frame in frames[::stride]:
        video.send(np.ascontiguousarray(frame))
    video.close()
    return float(episode_return)
