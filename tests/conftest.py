"""One XLA thread per worker, and compiled programs that workers and runs share."""

import os

os.environ.setdefault("PJRT_NPROC", "1")  # read when jax starts: workers must not compete for cores

import jax

from aql import compile_cache

compile_cache.enable()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # tests compile many small programs
