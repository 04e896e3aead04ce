"""Names of the benchmark's app, for those who must not import it: it reads its settings from the environment."""

from __future__ import annotations

from typing import Final

APP: Final = "bench.workers.app"
EMPTY: Final = "bench.empty"
READY: Final = "BENCH_READY_FILE"
"""Environment variable: the file that a worker makes when it takes messages."""
QUEUE: Final = "segmented"
"""Which the workers serve by default."""
LOADING: Final = "bench-loading"
"""Which nobody serves: messages are laid there, and renamed when all of them are."""
