"""Metrics, episode returns and the progress line, against literal values."""

import io
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event

from aql.errors import UserError
from aql.metrics import FILE, EpisodeReturns, MetricsWriter, Progress, read


def events(run: Path) -> list[Event]:
    """The events of a run: records are a length (8 bytes), its check sum (4), the data, its check sum (4)."""
    found = []
    for path in sorted(run.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            found.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


class TestWriter:
    def test_lines(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path / "run") as writer:
            writer.write(0, seconds=0.5, return_mean=None)
            writer.write(10, loss=np.float32(0.25), entropy=jnp.float32(1.5), updates=np.int64(3), phase="warm-up")
        assert (tmp_path / "run" / FILE).read_text() == (
            '{"actor_steps": 0, "seconds": 0.5, "return_mean": null}\n'
            '{"actor_steps": 10, "loss": 0.25, "entropy": 1.5, "updates": 3, "phase": "warm-up"}\n'
        )

    def test_each_line_is_on_disk_at_once(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path, tensorboard=False) as writer:
            writer.write(7)
            assert read(tmp_path) == [{"actor_steps": 7}]
        assert [path.name for path in tmp_path.iterdir()] == [FILE]

    def test_numbers_that_are_not_finite_become_null(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path) as writer:
            writer.write(1, a=float("nan"), b=np.float32(np.inf), c=jnp.array(-jnp.inf), d=1.0)
        text = (tmp_path / FILE).read_text()
        assert text == '{"actor_steps": 1, "a": null, "b": null, "c": null, "d": 1.0}\n'

    def test_arrays_are_refused(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path) as writer, pytest.raises(ValueError, match="size 1"):
            writer.write(1, loss=np.zeros(2))

    def test_truncate_after(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path) as writer:
            for steps in (10, 20, 30):
                writer.write(steps, loss=steps / 100)
        with MetricsWriter(tmp_path) as writer:
            writer.truncate_after(20)
            assert [row["actor_steps"] for row in read(tmp_path)] == [10, 20]
            writer.write(25, loss=0.5)
        assert read(tmp_path) == [
            {"actor_steps": 10, "loss": 0.1},
            {"actor_steps": 20, "loss": 0.2},
            {"actor_steps": 25, "loss": 0.5},
        ]

    def test_half_line(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_text('{"actor_steps": 1}\n{"actor_steps": 2, "lo')
        assert read(tmp_path) == [{"actor_steps": 1}]
        with MetricsWriter(tmp_path) as writer:
            writer.write(3)
        assert read(tmp_path) == [{"actor_steps": 1}, {"actor_steps": 3}]

    def test_last_line_that_lacks_only_its_end(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_text('{"actor_steps": 1}\n{"actor_steps": 2}')
        with MetricsWriter(tmp_path) as writer:
            writer.write(3)
        assert [row["actor_steps"] for row in read(tmp_path)] == [1, 2, 3]

    def test_truncate_with_a_half_line(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_bytes(b'{"actor_steps": 1}\n{"actor_steps": 2}\n{"phase": "\xce')
        with MetricsWriter(tmp_path) as writer:
            writer.truncate_after(1)
        assert read(tmp_path) == [{"actor_steps": 1}]

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"has no metrics\.jsonl: name the folder of a run"):
            read(tmp_path)
        (tmp_path / FILE).write_text('{"actor_steps": 1}\nnonsense\n{"actor_steps": 2}\n')
        with pytest.raises(UserError, match="line 2 is not JSON"):
            read(tmp_path)

    def test_tensorboard(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path) as writer:
            writer.write(10, loss=0.25, updates=3, phase="warm-up", eval_return_mean=None)
        scalars = [(e.step, v.tag, v.simple_value) for e in events(tmp_path) for v in e.summary.value]
        assert scalars == [(10, "loss", 0.25), (10, "updates", 3.0)]

    def test_tensorboard_forgets_what_a_resumed_run_repeats(self, tmp_path: Path) -> None:
        with MetricsWriter(tmp_path) as writer:
            writer.truncate_after(20)
            writer.write(25, loss=0.5)
        (start,) = [event for event in events(tmp_path) if event.HasField("session_log")]
        assert start.step == 21
        assert start.session_log.status == start.session_log.START


class TestEpisodeReturns:
    def test_two_environments(self) -> None:
        tracker = EpisodeReturns(2)
        no, yes = False, True
        assert tracker.update(np.array([9.0, 9.0]), np.array([yes, yes]), np.array([no, no])) == []
        assert tracker.update(np.array([1.0, 2.0]), np.array([no, no]), np.array([no, yes])) == [2.0]
        assert tracker.update(np.array([1.0, 9.0]), np.array([no, yes]), np.array([no, no])) == []
        assert tracker.update(np.array([0.5, 3.0]), np.array([no, no]), np.array([yes, yes])) == [2.5, 3.0]

    def test_the_reset_may_be_left_out(self) -> None:
        tracker = EpisodeReturns(1)
        assert tracker.update(np.array([4.0]), np.array([False]), np.array([True])) == [4.0]

    def test_sums_do_not_lose_small_rewards(self) -> None:
        tracker = EpisodeReturns(1)
        tracker.update(np.array([2.0**24], np.float32), np.array([False]), np.array([False]))
        assert tracker.update(np.array([1.0], np.float32), np.array([False]), np.array([True])) == [2.0**24 + 1]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TestProgress:
    def test_plain_lines(self) -> None:
        output, clock = io.StringIO(), Clock()
        with Progress(10_000, console=Console(file=output), clock=clock) as progress:
            for step in range(0, 3001, 100):  # 100 steps a second
                progress.update(step)
                clock.now += 1
            progress.update(9_000, return_mean=12.34, eval_return_mean=56.78)
        assert output.getvalue().splitlines() == [
            " 10 %  1,000/10,000 steps  100 steps/s  1:30 left",
            " 20 %  2,000/10,000 steps  100 steps/s  1:20 left",
            " 30 %  3,000/10,000 steps  100 steps/s  1:10 left",
            " 90 %  9,000/10,000 steps  381 steps/s  return 12.3  eval 56.8  after 0:31",
        ]

    def test_speed_is_recent_and_starts_where_the_run_was_resumed(self) -> None:
        output, clock = io.StringIO(), Clock()
        with Progress(1_000_000, 500_000, console=Console(file=output), clock=clock) as progress:
            for seconds, steps in ((10, 500_100), (30, 500_300), (50, 520_300)):
                clock.now = 100.0 + seconds
                progress.update(steps)
        last = output.getvalue().splitlines()[-1]
        assert last == " 52 %  520,300/1,000,000 steps  1,000 steps/s  8:00 left"

    def test_live_line(self) -> None:
        output, clock = io.StringIO(), Clock()
        console = Console(file=output, force_terminal=True, width=80, color_system=None)
        with Progress(150_000, console=console, clock=clock) as progress:
            clock.now += 60
            progress.update(60_000, return_mean=512.34, eval_return_mean=634.1)
            progress.update(60_001)  # too soon to be drawn
        erase = "\r\x1b[2K"
        first, second, *_, last = output.getvalue().split(erase)
        assert first.endswith("  0 %        0/150,000       0/s  --:-- left")
        assert second == "━━━━        40 %   60,000/150,000   1,000/s  return 512.3  eval 634.1  1:30 left"
        assert last.startswith("━━━╸       40 %   60,001/150,000   1,000/s  return 512.3  eval 634.1  after 1:00\n")

    def test_quiet(self) -> None:
        output, clock = io.StringIO(), Clock()
        for terminal in (False, True):
            with Progress(
                10, quiet=True, console=Console(file=output, force_terminal=terminal), clock=clock
            ) as progress:
                clock.now += 60
                progress.update(10)
        assert output.getvalue() == ""
