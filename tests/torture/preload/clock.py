"""A server's wall clock that is set forward and back, by a library that is preloaded into the server alone.

Redis ends keys by its wall clock, so a step of that clock ends leases early or late.
"""

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.torture.preload.libraries import preloading

OFFSET: Final = struct.Struct("=q")
"""Microseconds that the server's clock is ahead, in a file that the server has mapped."""
VARIABLE: Final = "SEGMENTED_PRELOAD_CLOCK"


class ServerClock:
    """How far ahead of the machine's clock the clock of one server is; `environment` starts a server under it."""

    def __init__(self, folder: Path, library: Path) -> None:
        """Make the file that holds the offset, which is 0 at first."""
        self._file = folder / "clock"
        self._file.write_bytes(OFFSET.pack(0))
        self._library = library

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of a server that goes by this clock."""
        return preloading(self._library, VARIABLE, self._file)

    def set_ahead(self, seconds: float) -> None:
        """Set the server's clock ahead of the machine's by this many seconds; a negative number sets it behind."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), OFFSET.size) as mapped:
            mapped[:] = OFFSET.pack(round(seconds * 1e6))
