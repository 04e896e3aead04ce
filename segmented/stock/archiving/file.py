"""The file of an archive: one JSON object per line, compressed if its name ends with .gz; complete or absent."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from segmented.errors import InvalidInput
from segmented.files import FILE_MODE, check_writable

COMPRESSED: Final = ".gz"
LEVEL: Final = 6
BUFFER: Final = 1 << 20
BETWEEN: Final = re.compile(r'\\+[tn]|\\*"')
"""Separators of values in a line of an archive: tabs and line ends as JSON writes them, once or twice; and quotes."""


class FileArchive:
    """One archive in one file. It appears under its name once it is complete."""

    def __init__(self, file: Path | str) -> None:
        """Archive to `file`; writes nothing. Raises InvalidInput for an empty name."""
        if not str(file).strip() or "\0" in str(file):
            raise InvalidInput(f"{str(file)!r} names no file")
        self._file = Path(file).absolute()
        self._beside = self._file.with_name(f".{self._file.name}.partial")
        self.name = str(self._file)
        """The place in words, as a later reader finds it."""

    def __repr__(self) -> str:
        return f"FileArchive({self.name!r})"

    def check(self) -> None:
        """Raise InvalidInput if the file cannot be written. Changes nothing."""
        check_writable(self._file, "the archive")
        if self._file.exists() and not self._file.is_file():
            raise InvalidInput(f"the archive {self._file} is a device or a pipe: name a file")

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self._file.is_file()

    def lines(self) -> Iterator[str]:
        """Yield the lines that are there, without their ends."""
        return lines_of(self._file)

    @contextmanager
    def writing(self) -> Iterator[Callable[[str], None]]:
        """Write to a file beside it, which takes its name when the block ends. If the block fails, nothing is there."""
        try:
            with self._opened() as raw:
                try:
                    with _compressing(raw, self._file) as file:
                        yield lambda line: _write(file, line)
                    raw.flush()
                    os.fsync(raw.fileno())
                    self._beside.replace(self._file)
                except BaseException:
                    self._beside.unlink(missing_ok=True)
                    raise
            _sync_folder(self._file.parent)
        except OSError as error:
            raise InvalidInput(f"the archive {self._file} cannot be written: {error.strerror or error}") from error

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """Open the file beside it, alone; what a killed process left there is overwritten."""
        descriptor = os.open(self._beside, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), FILE_MODE)
        with os.fdopen(descriptor, "wb", buffering=BUFFER) as raw:
            with suppress(ImportError):  # Windows has none
                import fcntl  # noqa: PLC0415  # as above

                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InvalidInput(f"another process is writing the archive {self._file}: let it finish") from None
                if not self._is_beside(descriptor):  # it was renamed before this process had its lock: it is complete
                    raise InvalidInput(f"another process has just written the archive {self._file}")
            os.ftruncate(descriptor, 0)
            yield raw

    def _is_beside(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._beside.lstat())
        except FileNotFoundError:
            return False


def names_customer(line: str, customer_id: str) -> bool:
    """Return whether a line of an archive names a customer."""
    written = json.dumps(customer_id)[1:-1]
    return written in line and ("\\" in customer_id or '"' in customer_id or written in BETWEEN.split(line))


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a file. Raises InvalidInput if it cannot be read, is damaged or is not text."""
    try:
        with file.open("rb") as raw:
            opened = gzip.GzipFile(fileobj=raw) if file.name.endswith(COMPRESSED) else raw
            for line in opened:
                yield line.decode().removesuffix("\n")
    except (OSError, EOFError, gzip.zlib.error, UnicodeDecodeError) as error:  # type: ignore[attr-defined]  # of zlib
        raise InvalidInput(f"the archive {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def _compressing(raw: IO[bytes], file: Path) -> Iterator[IO[bytes]]:
    if not file.name.endswith(COMPRESSED):
        yield raw
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as compressed:
        yield compressed  # type: ignore[misc]  # it is a binary stream


def _write(file: IO[bytes], line: str) -> None:
    file.write(line.encode() + b"\n")


def _sync_folder(folder: Path) -> None:
    """Make the new name durable."""
    with suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
