"""What actors send to the learner."""

from typing import Any, NamedTuple

import numpy as np


class Unroll(NamedTuple):
    """T+1 consecutive steps of B actors: T transitions and the state that the last of them reached.

    Consecutive unrolls overlap in one step. `reward[:, t]` and `discount[:, t]` follow the action of time t-1; the
    pair (t-1, t) is a transition unless `first[:, t]`, where a new episode starts.
    """

    observation: Any  # [B, T+1, *observation_shape]
    action: Any  # [B, T+1, D] what was done
    reward: Any  # [B, T+1]
    discount: Any  # [B, T+1] 0 at a true termination only
    first: Any  # [B, T+1] bool
    extras: dict[str, Any]  # [B, T+1, ...] what the agent wants back, such as `best_action`


def concatenate(unrolls: list[Unroll]) -> Unroll:
    """Joins unrolls along the batch axis."""
    extras = {name: np.concatenate([u.extras[name] for u in unrolls]) for name in unrolls[0].extras}
    fields = [np.concatenate(field) for field in zip(*(u[:5] for u in unrolls), strict=True)]
    return Unroll(*fields, extras=extras)
