"""Networks in flax linen."""

from typing import Any

from flax import linen as nn


def apply(module: nn.Module, params: Any, *args: Any, method: str = "__call__") -> Any:
    """The result of a module's method. (flax types it as a pair with mutable state, which no module here has.)"""
    return module.apply(params, *args, method=method)
