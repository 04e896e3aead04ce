"""Names of the benchmark's app, for processes that must not import it: it reads settings from the environment."""

from __future__ import annotations

from typing import Final

APP: Final = "bench.workers.app"
EMPTY: Final = "bench.empty"
READY: Final = "BENCH_READY_FILE"
"""Environment variable: the file that a worker creates when it takes messages."""
QUEUE: Final = "segmented"
"""The queue that workers serve by default."""
LOADING: Final = "bench-loading"
"""A queue that no worker serves: messages are collected there, then the queue is renamed."""
