"""A server's files after a power failure: each is cut at the last byte that was synced to the disk."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.torture.preload.libraries import preloading

VARIABLE: Final = "SEGMENTED_PRELOAD_SYNC_LOG"


class SyncLog:
    """How far one server has synced its files; `environment` starts the server with the library that notes it."""

    def __init__(self, file: Path, library: Path) -> None:
        """Note it in `file`."""
        self._file = file
        self._library = library

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of a server whose syncs are noted."""
        return preloading(self._library, VARIABLE, self._file)

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
