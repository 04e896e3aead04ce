"""The logs outside Redis: one line per event, appended in one write, and readable while they grow.

The submitter's log, against which the run is checked. It is on disk before the next orders are submitted:
    a NUMBER QUANTITY               the order was accepted
    f NUMBER QUANTITY               the order was refused on submission

The log of messages, one per process; NS is the system's monotonic clock, in nanoseconds:
    p NS MESSAGE NUMBER...          published: by the submitter, or again by the sweep
    w NS                            this worker is ready
    r NS MESSAGE                    this worker has taken the message from the broker
    b NS MESSAGE NUMBER...          this worker began to process its orders
    s NUMBER                        the step ran for an order; its effect comes later
    d NS MESSAGE                    this worker has finished the message
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ID_PREFIX: Final = "o-"
LOG: Final = "TORTURE_LOG"
"""Environment variable: the path of the process's log of messages."""
CHUNK: Final = 1 << 20
FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def order_id(number: int) -> str:
    """Return the id of an order."""
    return f"{ID_PREFIX}{number}"


def number_of(found: str) -> int:
    """Return the number of the order with this id, or 0 for an id of another program."""
    digits = found.removeprefix(ID_PREFIX)
    return int(digits) if digits != found and digits.isdecimal() else 0


class LogWriter:
    """Appends lines, each in one write, so that a kill leaves no partial line among others."""

    def __init__(self, path: Path) -> None:
        """Open the file at `path` for appending."""
        self._fd = os.open(path, FLAGS, 0o600)

    def write(self, *lines: str) -> None:
        """Append lines."""
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())

    def sync(self) -> None:
        """Wait until everything is on disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class LogTail:
    """Reads the lines of a growing file; an incomplete last line is left for the next call."""

    def __init__(self, path: Path) -> None:
        """Start at the beginning of the file, which may not exist yet."""
        self._path = path
        self._offset = 0

    def lines(self) -> Iterator[str]:
        """Read the lines appended since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while chunk := file.read(CHUNK):
                whole = chunk[: chunk.rfind(b"\n") + 1]
                if not whole:
                    return
                self._offset += len(whole)
                file.seek(self._offset)
                yield from whole.decode().splitlines()
