"""Where the checkout's files are."""

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

import psutil

TESTS: Final = Path(__file__).parents[1]
ROOT: Final = TESTS.parent
CDNOW: Final = TESTS / "data" / "cdnow_orders.csv.gz"
"""A real file of orders."""


SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # what is made there has a random name and 0700
ROOM_BYTES: Final = 4 << 30
"""More than the databases of three test workers take together."""


@cache
def quick_folder() -> Path | None:
    """Return a folder in memory that everybody can write to and run programs from; None if there is none with room."""
    if not os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        return None
    may_run = not os.statvfs(SHARED_MEMORY).f_flag & os.ST_NOEXEC
    room = min(shutil.disk_usage(SHARED_MEMORY).free, psutil.virtual_memory().available)
    return SHARED_MEMORY if may_run and room >= ROOM_BYTES else None
