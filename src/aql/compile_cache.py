"""Compiled functions on disk, so that the second start does not compile again."""

import hashlib
import os
import platform
from pathlib import Path

import jax
import jaxlib.version


def enable() -> None:
    """Keeps XLA's compiled programs in the user's cache folder, one for each CPU and version of jaxlib.

    A program compiled for one CPU can crash on another, and XLA does not check. `AQL_COMPILE_CACHE` names another
    folder; empty, it turns the cache off.
    """
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aql"
    root = os.environ.get("AQL_COMPILE_CACHE", str(default))
    if root:
        jax.config.update("jax_compilation_cache_dir", str(Path(root) / f"{jaxlib.version.__version__}-{_cpu()}"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described = "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    except OSError:
        described = platform.processor()
    return hashlib.sha256((platform.machine() + described).encode()).hexdigest()[:12]
