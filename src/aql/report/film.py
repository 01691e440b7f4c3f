"""A film of the greedy policy."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from aql import envs
from aql.errors import UserError
from aql.evaluation import Evaluator
from aql.runs import Restored

FRAMES_PER_SECOND = 50
STRIDE = 2  # steps per frame: control tasks make 40 to 100 steps a second


def watch(restored: Restored, path: Path, seed: int = 0, height: int = 480, width: int = 640) -> float:
    """Plays one greedy episode, writes it as an MP4 and gives its return."""
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise UserError("films need imageio-ffmpeg: pip install 'aql[report]'") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    env = envs.make_rendered(restored.config.env)
    video: Any = None
    steps = 0

    def draw(*_: Any) -> None:
        nonlocal video, steps
        if steps % max(1, STRIDE // restored.config.action_repeat) == 0:
            frame = np.ascontiguousarray(env.render(height, width))
            if video is None:  # Gymnasium environments choose their own size
                size = (frame.shape[1], frame.shape[0])
                with warnings.catch_warnings():
                    # The child runs another program at once: JAX's threads do not matter to it.
                    warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
                    video = imageio_ffmpeg.write_frames(
                        str(path), size, fps=FRAMES_PER_SECOND, quality=7, macro_block_size=2, ffmpeg_log_level="error"
                    )
                    video.send(None)
            video.send(frame)
        steps += 1

    held = envs.repeated(env, restored.config.action_repeat)
    (episode_return,) = Evaluator(restored.agent, held, seed).evaluate(restored.params, watch=draw)
    env.close()
    video.close()
    return float(episode_return)
