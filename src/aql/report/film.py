"""A film of the greedy policy: the episode, and beside it what the agent has in mind."""

import math
import warnings
from pathlib import Path
from typing import Any

from aql import envs
from aql.agents.base import Decision, Thought
from aql.envs.base import TimeStep
from aql.errors import UserError
from aql.evaluation import Evaluator
from aql.runs import Restored

MOST_FRAMES_PER_SECOND = 60  # of a film; faster environments are shown every few steps


def watch(restored: Restored, path: Path, seed: int = 0, height: int = 480, width: int = 640) -> float:
    """Plays one greedy episode, writes it as an MP4 and gives its return."""
    try:
        import imageio_ffmpeg

        from aql.report.scene import Scene
    except ModuleNotFoundError as error:
        raise UserError(f"films need {error.name}: pip install 'aql[report]'") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    env = envs.make_rendered(restored.config.env)
    decisions_per_second = env.steps_per_second / restored.config.action_repeat
    stride = math.ceil(decisions_per_second / MOST_FRAMES_PER_SECOND)
    scene = Scene(restored.agent.space, env.action_names, restored.config.action_repeat)
    video: Any = None

    def draw(now: TimeStep, decision: Decision, thought: Thought) -> None:
        nonlocal video
        scene.advance(now)
        if scene.decision % stride:
            return
        frame = scene.draw(env.render(height, width), decision, thought)
        if video is None:  # Gymnasium environments choose their own size
            size = (frame.shape[1], frame.shape[0])
            with warnings.catch_warnings():
                # The child runs another program at once: JAX's threads do not matter to it.
                warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
                video = imageio_ffmpeg.write_frames(
                    str(path),
                    size,
                    fps=decisions_per_second / stride,
                    quality=7,
                    macro_block_size=2,
                    ffmpeg_log_level="error",
                )
                video.send(None)
        video.send(frame)

    held = envs.repeated(env, restored.config.action_repeat)
    (episode_return,) = Evaluator(restored.agent, held, seed).evaluate(restored.params, watch=draw)
    env.close()
    video.close()
    return float(episode_return)
