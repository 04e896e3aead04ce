"""Small C libraries that are preloaded into a server alone, to cause faults that no signal causes.

They are compiled with the machine's own compiler. One sets the server's wall clock forward and back: Redis ends keys by
it, so a step ends leases early or late. The other notes how far files are synced: after a power failure each is cut at
the last byte that was synced to the disk.
"""

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from segmented.servers.embedded import quiet_environment

COMPILER: Final = "cc"
COMPILE_SECONDS: Final = 60.0
FLAGS: Final = ("-O2", "-Wall", "-Werror", "-shared", "-fPIC")

Library = Literal["clock", "sync_log"]


def compiler() -> Path | None:
    """Return the path of the C compiler, or None if the machine has none."""
    found = shutil.which(COMPILER)
    return None if found is None else Path(found)


def compiled(name: Library, folder: Path, compiler: Path) -> Path:
    """Compile a library into `folder` and return its path."""
    source = Path(__file__).with_name(f"{name}.c")
    library = folder / f"{name}.so"
    command = [str(compiler), *FLAGS, "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=COMPILE_SECONDS, capture_output=True)  # our own source
    return library


def preloading(library: Path, variable: str, file: Path) -> Mapping[str, str]:
    """Return the environment of a server with this library, which finds its file by the variable."""
    return quiet_environment(os.environ) | {"LD_PRELOAD": str(library), variable: str(file)}


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


SYNC_VARIABLE: Final = "SEGMENTED_PRELOAD_SYNC_LOG"


class SyncLog:
    """How far one server has synced its files; `environment` starts the server with the library that notes it."""

    def __init__(self, file: Path, library: Path) -> None:
        """Note it in `file`."""
        self._file = file
        self._library = library

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of a server whose syncs are noted."""
        return preloading(self._library, SYNC_VARIABLE, self._file)

    def cut(self, folder: Path) -> int:
        """Cut the files below `folder` of a server that is dead, and return how many bytes are gone."""
        gone = 0
        for path, size, synced in self._files(folder):
            os.truncate(path, synced)
            gone += size - synced
        return gone

    def covers(self, folder: Path) -> bool:
        """Return whether all bytes of the files below `folder` are on the disk."""
        return all(size == synced for _, size, synced in self._files(folder))

    def _files(self, folder: Path) -> Iterator[tuple[Path, int, int]]:
        """Yield each file, its size, and how much of it is on the disk."""
        sizes: dict[int, int] = {}
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                inode, size = map(int, line.split())
                sizes[inode] = max(size, sizes.get(inode, 0))
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                found = path.stat()
                yield path, found.st_size, min(found.st_size, sizes.get(found.st_ino, 0))
