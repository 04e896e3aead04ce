"""A server's wall clock that tests set forward and back, by a library that is preloaded into the server alone.

Redis ends keys by its wall clock, so a step of that clock ends leases early or late. The library (`clock.c`) is
compiled with the machine's own compiler.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.servers.supervised import quiet_environment
from tests.support.rings import require

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE: Final = Path(__file__).with_name("clock.c")
COMPILE_SECONDS: Final = 60.0
OFFSET: Final = struct.Struct("=q")
"""Microseconds that the server's clock is ahead, in a file that the server has mapped."""


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
        shim = {"LD_PRELOAD": str(self._library), "SEGMENTED_TEST_CLOCK": str(self._file)}
        return quiet_environment(os.environ) | shim

    def set_ahead(self, seconds: float) -> None:
        """Set the server's clock ahead of the machine's by this many seconds; a negative number sets it behind."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), OFFSET.size) as mapped:
            mapped[:] = OFFSET.pack(round(seconds * 1e6))


def compiled_library(folder: Path) -> Path:
    """Compile the library into `folder`; without a C compiler the test is skipped, or fails under CI."""
    compiler = shutil.which("cc")
    require("A server's own clock", found=compiler is not None, missing="no C compiler (cc) to build its library with")
    library = folder / "clock.so"
    command = [str(compiler), "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, timeout=COMPILE_SECONDS, capture_output=True)  # our own source
    return library
