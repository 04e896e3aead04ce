"""The logs outside Redis: a line an event, appended in one write, and read while others write on.

The submitter's log, which is what the run is held to; it is on disk before the next orders are submitted:
    a NUMBER QUANTITY               the order was accepted
    f NUMBER QUANTITY               it was refused at the door

The log of messages, one a process; NS is the system's monotonic clock, in nanoseconds:
    p NS MESSAGE NUMBER...          published: by the submitter, or again by whoever swept
    w NS                            this worker is ready
    r NS MESSAGE                    this worker has taken the message from the broker
    b NS MESSAGE NUMBER...          this worker began with its orders
    s NUMBER                        the work itself was done for an order; its effect comes after it
    d NS MESSAGE                    this worker is done with the message
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ID_PREFIX: Final = "o-"
LOG: Final = "TORTURE_LOG"
"""The variable that tells a process where its log of messages is."""
CHUNK: Final = 1 << 20
FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def order_id(number: int) -> str:
    """Return the id of an order."""
    return f"{ID_PREFIX}{number}"


def number_of(found: str) -> int:
    """Return the number of the order with this id; 0 for an id that is none of ours."""
    digits = found.removeprefix(ID_PREFIX)
    return int(digits) if digits != found and digits.isdecimal() else 0


class Writer:
    """Appends lines, each in one write, so that no kill leaves half of one in the middle of others."""

    def __init__(self, path: Path) -> None:
        """Append to the file at `path`."""
        self._fd = os.open(path, FLAGS, 0o600)

    def write(self, *lines: str) -> None:
        """Append lines."""
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())

    def sync(self) -> None:
        """Return when everything is on disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Give the file up."""
        os.close(self._fd)


class Tail:
    """Reads the lines of a file that grows; one that is not whole yet is left for the next time."""

    def __init__(self, path: Path) -> None:
        """Begin at the beginning, also of a file that is not there yet."""
        self._path = path
        self._offset = 0

    def lines(self) -> Iterator[str]:
        """Read the lines that have come since the last call."""
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
