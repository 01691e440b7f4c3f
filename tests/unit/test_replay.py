"""Replay of counting data: every number says where and when it belongs."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from aql.experience import Unroll, concatenate
from aql.replay import Replay

ACTORS = 3


def _step(t: int) -> Unroll:
    """Step t of every actor; the observation is (t, actor)."""
    actor = np.arange(ACTORS)
    return Unroll(
        observation=np.stack([np.full(ACTORS, t), actor], axis=1).astype(np.int16),
        action=np.full((ACTORS, 2), t, np.float32),
        reward=(10 * t + actor).astype(np.float32),
        discount=np.full(ACTORS, t % 5 != 0, np.float32),
        first=np.full(ACTORS, t % 5 == 0),
        mask=np.ones((ACTORS, 0), bool),
        extras={"best_action": np.full((ACTORS, 2), -t, np.float32), "memory": np.full((ACTORS, 4, 1), t, np.int64)},
    )


def _filled(steps: int, capacity: int = 20, length: int = 4, aligned: bool = False) -> Replay:
    replay = Replay(ACTORS, capacity, length, aligned)
    for t in range(steps):
        replay.add(_step(t))
    return replay


def _times(unrolls: Unroll) -> np.ndarray:
    return unrolls.observation[:, :, 0].astype(int)


def _check_rows_agree(unrolls: Unroll, per_actor: int) -> None:
    """Every field of a step is of the same time and actor, and actors keep their order."""
    t, actor = _times(unrolls), unrolls.observation[:, :, 1]
    np.testing.assert_array_equal(actor, np.repeat(np.arange(ACTORS), per_actor)[:, None] + 0 * t)
    np.testing.assert_array_equal(unrolls.reward, 10 * t + actor)
    np.testing.assert_array_equal(unrolls.action, np.stack([t, t], axis=-1))
    np.testing.assert_array_equal(unrolls.first, t % 5 == 0)
    np.testing.assert_array_equal(unrolls.discount, t % 5 != 0)
    np.testing.assert_array_equal(unrolls.extras["best_action"], np.stack([-t, -t], axis=-1))
    np.testing.assert_array_equal(unrolls.extras["memory"][:, :, 3, 0], t)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("steps", [5, 6, 13, 20, 21, 39, 40, 41, 57, 1000])
def test_windows_are_contiguous_and_hold_only_what_the_ring_holds(steps: int, aligned: bool) -> None:
    replay = _filled(steps, aligned=aligned)
    assert len(replay) == min(steps, 20)
    unrolls = replay.sample(np.random.default_rng(steps), 50)
    _check_rows_agree(unrolls, per_actor=50)
    t = _times(unrolls)
    assert t.shape == (ACTORS * 50, 5)
    np.testing.assert_array_equal(np.diff(t, axis=1), 1)  # never across the write head
    assert t.min() >= steps - 20
    assert t.max() < steps


def test_fifo_every_window_and_no_other() -> None:
    starts = _times(_filled(33).sample(np.random.default_rng(0), 200))[:, 0]
    # Steps 13..32 are held; windows of 5 begin at 13..28.
    assert sorted(set(starts.tolist())) == list(range(13, 29))


def test_aligned_windows_begin_at_multiples_of_the_length() -> None:
    starts = _times(_filled(35, aligned=True).sample(np.random.default_rng(0), 200))[:, 0]
    # Steps 15..34 are held; 30 + 4 is the last one, so 16, 20, 24, 28 (to 32) can begin, 32 is not complete.
    assert sorted(set(starts.tolist())) == [16, 20, 24, 28]
    starts = _times(_filled(37, aligned=True).sample(np.random.default_rng(0), 200))[:, 0]
    assert sorted(set(starts.tolist())) == [20, 24, 28, 32]


@pytest.mark.parametrize("aligned", [False, True])
def test_starts_are_uniform_and_actors_independent(aligned: bool) -> None:
    per_actor = 8000
    starts = _times(_filled(33, aligned=aligned).sample(np.random.default_rng(0), per_actor))[:, 0]
    starts = starts.reshape(ACTORS, per_actor)
    for actor in range(ACTORS):
        _, count = np.unique(starts[actor], return_counts=True)
        assert len(count) == (4 if aligned else 16)
        assert stats.chisquare(count).pvalue > 1e-3
    assert abs(np.corrcoef(starts[0], starts[1])[0, 1]) < 0.05


def test_newest_comes_when_an_unroll_is_complete() -> None:
    replay = Replay(ACTORS, 20, 4, aligned=False)
    assert replay.newest() is None
    sent = []
    for t in range(60):
        replay.add(_step(t))
        new = replay.newest()
        if new is not None:
            _check_rows_agree(new, per_actor=1)
            sent.append((t, _times(new)[0].tolist()))
    # The first one needs T+1 steps, each later one T: they overlap in one step.
    assert sent == [(t, list(range(t - 4, t + 1))) for t in range(4, 60, 4)]


def test_newest_of_single_transitions() -> None:
    replay = Replay(ACTORS, 5, 1, aligned=False)
    windows = []
    for t in range(12):
        replay.add(_step(t))
        new = replay.newest()
        windows.append(None if new is None else _times(new)[0].tolist())
    assert windows == [None, *([t - 1, t] for t in range(1, 12))]


def test_the_smallest_ring_that_can_hold_an_unroll() -> None:
    replay = _filled(29, capacity=5, length=4)
    unrolls = replay.sample(np.random.default_rng(0), 10)
    np.testing.assert_array_equal(_times(unrolls), np.arange(24, 29) + np.zeros((ACTORS * 10, 1), int))


def test_what_was_sampled_does_not_change_later() -> None:
    replay = _filled(20)
    unrolls = replay.sample(np.random.default_rng(0), 5)
    before = unrolls.reward.copy()
    for t in range(20, 60):
        replay.add(_step(t))
    np.testing.assert_array_equal(unrolls.reward, before)


def test_the_ring_keeps_its_own_copy() -> None:
    replay = Replay(ACTORS, 20, 1, aligned=False)
    steps = [_step(0), _step(1)]
    for step in steps:
        replay.add(step)
        step.reward[:] = -1
        step.extras["best_action"][:] = -1
    unrolls = replay.sample(np.random.default_rng(0), 2)
    np.testing.assert_array_equal(unrolls.reward, np.repeat([[0, 10], [1, 11], [2, 12]], 2, axis=0))
    assert unrolls.extras["best_action"].min() == -1  # of step 1, which is what `_step` gave
    _check_rows_agree(unrolls, per_actor=2)


def test_dtypes_are_kept() -> None:
    unrolls = _filled(10).sample(np.random.default_rng(0), 2)
    expected = [np.int16, np.float32, np.float32, np.float32, bool]
    assert [field.dtype for field in unrolls[:5]] == expected
    assert unrolls.extras["best_action"].dtype == np.float32
    assert unrolls.extras["memory"].dtype == np.int64


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("steps", [0, 3, 7, 20, 47])
def test_state_round_trip(steps: int, aligned: bool) -> None:
    replay = _filled(steps, aligned=aligned)
    copy = Replay(ACTORS, 20, 4, aligned)
    for t in range(9):
        copy.add(_step(900 + t))  # is forgotten
    copy.set_state({name: leaf.copy() for name, leaf in replay.get_state().items()})
    assert len(copy) == len(replay)
    for t in range(steps, steps + 8):
        replay.add(_step(t))
        copy.add(_step(t))
    samples = [r.sample(np.random.default_rng(1), 30) for r in (replay, copy)]
    _check_rows_agree(samples[1], per_actor=30)
    for ours, theirs in zip(_leaves(samples[0]), _leaves(samples[1]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_state_holds_only_rows_in_use() -> None:
    assert {leaf.shape[0] for name, leaf in _filled(7).get_state().items() if name != "steps"} == {7}


@pytest.mark.parametrize("steps", [1, 4])
def test_too_short_is_refused(steps: int) -> None:
    with pytest.raises(ValueError, match=f"holds {steps} steps: an unroll needs 5"):
        _filled(steps).sample(np.random.default_rng(0), 1)


def test_seed_matters() -> None:
    replay = _filled(20)
    once, again, other = (_times(replay.sample(np.random.default_rng(s), 20)) for s in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert np.any(once != other)


def test_concatenate_joins_the_batch_axis() -> None:
    replay = _filled(9)
    new = replay.newest()
    assert new is not None
    both = concatenate([new, replay.sample(np.random.default_rng(0), 2)])
    assert {len(leaf) for leaf in _leaves(both)} == {ACTORS * 3}
    np.testing.assert_array_equal(_times(both)[:ACTORS], np.arange(4, 9) + np.zeros((ACTORS, 1), int))


def _leaves(unrolls: Unroll) -> list[Any]:
    return [*unrolls[:5], *unrolls.extras.values()]
