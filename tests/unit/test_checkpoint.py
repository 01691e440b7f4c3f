"""Checkpoints come back bit for bit, or not at all."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from aql.errors import UserError
from aql.runtime import checkpoint

DTYPES = [np.bool_, np.uint8, np.uint32, np.int32, np.int64, np.float32, np.float64, ml_dtypes.bfloat16]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal to the bit, NaN included."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def save_step(root: Path, step: int, size: int = 1000) -> Path:
    folder = checkpoint.folder_of(root, step)
    arrays: checkpoint.Arrays = {
        "agent": {"weights": np.full(size, step, np.float32)},
        "replay": {"reward": np.full((size, 4), step, np.int64)},
    }
    checkpoint.save(folder, arrays, {"actor_steps": step})
    return folder


def check_step(arrays: checkpoint.Arrays, meta: dict[str, Any]) -> int:
    step: int = meta["actor_steps"]
    assert set(arrays) == {"agent", "replay"}
    assert (arrays["agent"]["weights"] == step).all()
    assert (arrays["replay"]["reward"] == step).all()
    return step


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
    def test_dtypes_and_shapes(self, tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
        array = np.asarray(np.random.default_rng(0).integers(0, 2, shape)).astype(dtype)
        checkpoint.save(tmp_path / "c", {"agent": {"x": array}}, {})
        arrays, _ = checkpoint.load(tmp_path / "c")
        assert same(arrays["agent"]["x"], array)

    def test_memory_layouts(self, tmp_path: Path) -> None:
        grid = np.arange(24, dtype=np.int64).reshape(4, 6)
        named = {
            "transposed": grid.T,
            "strided": grid[::2, ::3],
            "reversed": grid[::-1],
            "swapped": grid.astype(">i8"),
        }
        checkpoint.save(tmp_path / "c", {"agent": named}, {})
        arrays, _ = checkpoint.load(tmp_path / "c")
        for name, array in named.items():
            np.testing.assert_array_equal(arrays["agent"][name], array)

    def test_special_numbers(self, tmp_path: Path) -> None:
        array = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38], np.float32)
        checkpoint.save(tmp_path / "c", {"agent": {"x": array}}, {})
        assert same(checkpoint.load(tmp_path / "c")[0]["agent"]["x"], array)

    def test_loaded_arrays_are_writable_and_independent_of_the_file(self, tmp_path: Path) -> None:
        folder = save_step(tmp_path, 3)
        checkpoint.load(folder)[0]["agent"]["weights"][:] = 7
        check_step(*checkpoint.load(folder))

    def test_generator_state(self, tmp_path: Path) -> None:
        generator = np.random.default_rng(5)
        generator.random(3)
        checkpoint.save(tmp_path / "c", {}, {"generator": generator.bit_generator.state})
        other = np.random.default_rng(0)
        other.bit_generator.state = checkpoint.load(tmp_path / "c")[1]["generator"]
        assert other.random(4).tolist() == generator.random(4).tolist()

    def test_meta(self, tmp_path: Path) -> None:
        meta: dict[Any, Any] = {
            "big": 2**300,
            "float": 0.1,
            "text": "λ",
            "none": None,
            "list": [1, [True]],
            "empty": {},
        }
        checkpoint.save(tmp_path / "c", {"empty": {}}, meta | {"tuple": (1, 2), 10: "ten", 9: "nine"})
        arrays, loaded = checkpoint.load(tmp_path / "c")
        assert arrays == {"empty": {}}
        assert loaded == meta | {"tuple": [1, 2], "10": "ten", "9": "nine"}

    def test_a_checkpoint_of_the_same_name_is_replaced(self, tmp_path: Path) -> None:
        save_step(tmp_path, 1, size=10)
        folder = save_step(tmp_path, 1, size=20)
        assert len(checkpoint.load(folder)[0]["agent"]["weights"]) == 20
        assert [path.name for path in folder.parent.iterdir()] == ["000000000001"]


class TestDamage:
    def test_bit_flips_in_arrays(self, tmp_path: Path) -> None:
        folder = save_step(tmp_path, 1)
        generator = np.random.default_rng(0)
        for name in ["agent.safetensors", "replay.safetensors"] * 10:
            path = folder / name
            position, bit = int(generator.integers(path.stat().st_size)), int(generator.integers(8))
            flip(path, position, bit)
            with pytest.raises(UserError, match=rf"{re.escape(str(path))} is damaged .*use the checkpoint before"):
                checkpoint.load(folder)
            flip(path, position, bit)
        check_step(*checkpoint.load(folder))

    def test_bit_flips_in_the_manifest_never_change_what_is_loaded(self, tmp_path: Path) -> None:
        folder = save_step(tmp_path, 1, size=2)
        path = folder / checkpoint.MANIFEST
        detected = 0
        for position in range(path.stat().st_size):
            flip(path, position, position % 8)
            try:
                assert check_step(*checkpoint.load(folder)) == 1  # white space may flip to white space
            except checkpoint.DamagedError:
                detected += 1
            flip(path, position, position % 8)
        assert detected > 0.9 * path.stat().st_size

    @pytest.mark.parametrize("name", ["agent.safetensors", "checkpoint.json"])
    @pytest.mark.parametrize("how", ["missing", "short", "empty"])
    def test_files_that_are_not_whole(self, tmp_path: Path, name: str, how: str) -> None:
        save_step(tmp_path, 1)
        path = save_step(tmp_path, 2) / name
        data = path.read_bytes()
        path.unlink() if how == "missing" else path.write_bytes(data[: len(data) // 2 if how == "short" else 0])
        with pytest.raises(UserError, match=f"{name} is damaged"):
            checkpoint.load(path.parent)
        assert checkpoint.latest(tmp_path) == checkpoint.folder_of(tmp_path, 1)

    def test_load_latest_falls_back_with_a_warning(self, tmp_path: Path) -> None:
        for step in (1, 2, 3):
            save_step(tmp_path, step)
        flip(checkpoint.folder_of(tmp_path, 3) / "agent.safetensors", -1, 0)
        with pytest.warns(RuntimeWarning, match=r"000000000003/agent\.safetensors is damaged"):
            loaded = checkpoint.load_latest(tmp_path)
        assert check_step(*loaded) == 2

    def test_nothing_to_load(self, tmp_path: Path) -> None:
        assert checkpoint.latest(tmp_path) is None
        with pytest.raises(UserError, match="no intact checkpoint"):
            checkpoint.load_latest(tmp_path)
        with pytest.raises(UserError, match="there is no checkpoint"):
            checkpoint.load(tmp_path / "absent")

    def test_another_format_is_not_called_damaged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save_step(tmp_path, 1)
        monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
        folder = save_step(tmp_path, 2)
        monkeypatch.undo()
        with pytest.raises(
            UserError, match=f"has format {checkpoint.FORMAT + 1}, expected {checkpoint.FORMAT}"
        ) as caught:
            checkpoint.load(folder)
        assert not isinstance(caught.value, checkpoint.DamagedError)


class TestRunFolder:
    def test_latest_is_by_step_and_ignores_what_is_no_checkpoint(self, tmp_path: Path) -> None:
        for step in (9, 100, 20):
            save_step(tmp_path, step)
        for name in (".000000000200.tmp", "000000000300", "best", "1e9"):
            (tmp_path / "checkpoints" / name).mkdir()
        assert checkpoint.latest(tmp_path) == tmp_path / "checkpoints" / "000000000100"

    def test_prune(self, tmp_path: Path) -> None:
        for step in (1, 2, 3, 4):
            save_step(tmp_path, step)
        (tmp_path / "checkpoints" / ".000000000005.tmp").mkdir()
        (checkpoint.folder_of(tmp_path, 3) / checkpoint.MANIFEST).write_text("{")
        checkpoint.prune(tmp_path, keep=2)  # the damaged one does not count
        left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        assert left == ["000000000002", "000000000003", "000000000004"]
        with pytest.raises(UserError, match="keep 1 or more"):
            checkpoint.prune(tmp_path, keep=0)

    def test_a_full_disk(self, tmp_path: Path) -> None:
        save_step(tmp_path, 1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # no file may be larger
        try:
            with pytest.raises(UserError, match=r"000000000002 cannot be written .*free some space"):
                save_step(tmp_path, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000000001"]
        save_step(tmp_path, 2)
        assert check_step(*checkpoint.load_latest(tmp_path)) == 2

    def test_kill(self, tmp_path: Path) -> None:
        # In a process of its own: one that has not used JAX may fork.
        done = subprocess.run(
            [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        kills, interrupted = map(int, done.stdout.split())
        assert kills == 25
        assert interrupted > 0  # or no kill fell into a save, and this tested nothing


def kill_while_saving(root: Path) -> None:
    """Starts a process that saves without pause, kills it, and looks at what it left; many times."""
    warnings.simplefilter("error")  # a warning would be a damaged checkpoint
    generator = np.random.default_rng(0)
    began = time.monotonic()
    save_step(root, 0, size=50_000)
    duration = time.monotonic() - began  # disks differ
    kills, interrupted, newest = 0, 0, 0
    for _ in range(25):
        child = os.fork()
        if child == 0:
            for step in count(newest + 1):
                save_step(root, step, size=50_000)
                checkpoint.prune(root, keep=2)
        time.sleep(generator.uniform(0.1, 5) * duration)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        kills += 1
        interrupted += any((root / "checkpoints").glob(".*.tmp"))
        step = check_step(*checkpoint.load_latest(root))
        assert step >= newest
        newest = step
    assert newest > 0
    print(kills, interrupted)


class State(NamedTuple):
    count: Any
    inner: Any


def tree() -> dict[str, Any]:
    params = {"Dense_0": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3, jnp.bfloat16)}}
    optimizer = optax.chain(optax.clip(1.0), optax.adam(1e-3))
    return {
        "params": params,
        "optimizer": optimizer.init(params),
        "key": jax.random.key_data(jax.random.key(3)),
        "nested": (State(np.int64(2**40), [np.array([True]), None]), np.zeros((0, 4), np.uint8)),
    }


class TestTrees:
    def test_names(self) -> None:
        flat = checkpoint.flatten({"params": {"Dense_0": {"bias": np.zeros(3)}}, "state": State(np.ones(()), [4])})
        assert list(flat) == ["params/Dense_0/bias", "state/count", "state/inner/0"]

    def test_round_trip_through_a_file(self, tmp_path: Path) -> None:
        before = tree()
        checkpoint.save(tmp_path / "c", {"agent": checkpoint.flatten(before)}, {})
        like = jax.tree.map(lambda leaf: (jnp if isinstance(leaf, jax.Array) else np).zeros_like(leaf), before)
        after = checkpoint.unflatten(like, checkpoint.load(tmp_path / "c")[0]["agent"])
        assert str(jax.tree.structure(after)) == str(jax.tree.structure(before))
        for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
            assert isinstance(one, jax.Array) == isinstance(other, jax.Array)
            assert same(np.asarray(one), np.asarray(other))

    def test_abstract_like(self) -> None:
        like = jax.eval_shape(lambda: {"x": jnp.ones((2, 3))})
        loaded = checkpoint.unflatten(like, {"x": np.full((2, 3), 5, np.float32)})
        assert isinstance(loaded["x"], jax.Array)
        assert (loaded["x"] == 5).all()

    def test_jax_arrays_do_not_share_memory(self) -> None:
        flat = {"x": np.zeros(1000, np.float32)}
        loaded = checkpoint.unflatten({"x": jnp.ones(1000)}, flat)
        flat["x"][:] = 1
        assert (loaded["x"] == 0).all()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda flat: flat.pop("a/b"), "'a/b' is not in the checkpoint"),
            (lambda flat: flat.update(z=np.ones(1)), "'z' is in the checkpoint, but not expected"),
            (lambda flat: flat.update(c=np.ones((3, 2))), r"'c' has shape \(3, 2\), expected \(2,\)"),
            (lambda flat: flat.update(c=np.ones(2, np.int32)), "'c' has dtype int32, expected float32"),
        ],
    )
    def test_mismatch(self, change: Callable[[dict[str, np.ndarray]], None], message: str) -> None:
        like = {"a": {"b": np.zeros(2, np.float32)}, "c": jnp.zeros(2)}
        flat = checkpoint.flatten(like)
        change(flat)
        with pytest.raises(UserError, match=f"{message}: load it with the agent"):
            checkpoint.unflatten(like, flat)

    def test_ambiguous_names(self) -> None:
        with pytest.raises(ValueError, match="two leaves are called 'a/b'"):
            checkpoint.flatten({"a": {"b": np.zeros(1)}, "a/b": np.zeros(1)})


if __name__ == "__main__":
    kill_while_saving(Path(sys.argv[1]))
