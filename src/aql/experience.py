"""What actors send to the learner."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Unroll(NamedTuple):
    """T+1 consecutive steps of B actors: T transitions and the state that the last of them reached.

    Consecutive unrolls overlap in one step. `reward[:, t]` and `discount[:, t]` follow the action of time t-1; the
    pair (t-1, t) is a transition unless `first[:, t]`, where a new episode starts.
    """

    observation: Any  # [B, T+1, *observations.shape]
    action: Any  # [B, T+1, D] what was done
    reward: Any  # [B, T+1]
    discount: Any  # [B, T+1] 0 at a true termination only
    first: Any  # [B, T+1] bool
    mask: Any  # [B, T+1, M] bool, what could be chosen; M = 0 in environments without masks
    extras: dict[str, Any]  # [B, T+1, ...] what the agent wants back, such as `best_action`

    def named(self) -> dict[str, Any]:
        """The leaves by name, as `reward` or `extras/best_action`."""
        fields = self._asdict()
        return {f"extras/{name}": leaf for name, leaf in fields.pop("extras").items()} | fields

    @classmethod
    def from_named(cls, leaves: Mapping[str, Any]) -> "Unroll":
        """The inverse of `named`."""
        extras = {name.removeprefix("extras/"): leaf for name, leaf in leaves.items() if name.startswith("extras/")}
        fields = {name: leaf for name, leaf in leaves.items() if "/" not in name}
        return cls(extras=extras, **fields)

    def map(self, function: Callable[[Any], Any]) -> "Unroll":
        """The function applied to every leaf. (jax.tree.map costs more than the work on leaves this small.)"""
        return Unroll.from_named({name: function(leaf) for name, leaf in self.named().items()})


def concatenate(unrolls: list[Unroll]) -> Unroll:
    """Joins unrolls along the batch axis."""
    leaves = [u.named() for u in unrolls]
    return Unroll.from_named({name: np.concatenate([named[name] for named in leaves]) for name in leaves[0]})
