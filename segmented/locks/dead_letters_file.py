"""Dead letters in an append-only file of JSON lines: each line is one event.

A line counts once its newline is on the disk (fsync before `record` returns). Half a line at the end comes from a crash
before `record` returned; the next writer begins a new line after it. Writers of all processes take turns with an
exclusive lock on the file, so it must be on a local disk.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.locks.dead_letters import DeadLetter, Work
from segmented.process import Guard

FILE_MODE: Final = 0o600
"""Only the owner may read payloads."""


@dataclass(slots=True)
class _Kept:
    letter: DeadLetter
    is_done: bool = False


class FileDeadLetters:
    """Dead letters in one file. Threads may share the object, and processes of one machine the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Keep letters in the file `path`, created if it is missing. Raises InvalidInput if it cannot be written."""
        self._path = Path(path).absolute()
        self._guard = Guard()
        self._file: int | None = None
        """The open file of a call that is under way, and whether that call is about to close it."""
        self._is_ending = False
        self._start_over()
        if self._path.exists() and not self._path.is_file():
            raise InvalidInput(f"the dead letters at {self._path} cannot be kept: it is not a regular file")
        try:
            with self._opened():
                pass
        except StoreUnavailable as error:
            raise InvalidInput(str(error)) from error

    def _start_over(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._places: list[_Kept] = []
        """The letters by their place, which counts from 1."""
        self._file_id = (0, 0)
        self._read_to = 0

    def record(self, work: Work) -> None:
        """Append the work, or for an id that is kept and not done, an event that it was recorded again."""
        with self._opened() as file:
            kept = self._kept.get(work.work_id)
            if kept is None:
                self._append(file, {"recorded": work.work_id, "name": work.name, "payload": work.payload})
            elif not kept.is_done:
                self._append(file, {"again": work.work_id})

    def newest(self) -> int:
        """Count the letters."""
        with self._opened():
            return len(self._kept)

    def take(self, after: int, attempts_max: int) -> DeadLetter | None:
        """Return the first letter after `after` that has an attempt left, and append the attempt."""
        with self._opened() as file:
            for index in range(max(after, 0), len(self._places)):
                kept = self._places[index]
                if not kept.is_done and kept.letter.attempts < attempts_max:
                    self._append(file, {"attempt": kept.letter.work.work_id})
                    return kept.letter
        return None

    def put_back(self, letter: DeadLetter) -> None:
        """Append that the attempt does not count."""
        self._note({"put_back": letter.work.work_id})

    def mark_done(self, letter: DeadLetter) -> bool:
        """Append that it is done, unless it was recorded again."""
        with self._opened() as file:
            kept = self._kept.get(letter.work.work_id)
            is_done = kept is not None and kept.letter.recordings == letter.recordings
            if is_done:
                self._append(file, {"done": letter.work.work_id})
            return is_done

    def mark_failed(self, letter: DeadLetter, error: str) -> None:
        """Append the error of the attempt."""
        self._note({"failed": letter.work.work_id, "error": error})

    def pending(self) -> list[DeadLetter]:
        """Return all letters that are not done, with or without attempts left, in the order of recording."""
        with self._opened():
            return [kept.letter for kept in self._kept.values() if not kept.is_done]

    def __repr__(self) -> str:
        return f"FileDeadLetters({str(self._path)!r})"

    def _note(self, event: dict[str, Any]) -> None:
        with self._opened() as file:
            self._append(file, event)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file with an exclusive lock and read its new events."""
        with self._guard.lock:
            if self._file is not None:  # a signal handler or a finalizer runs in the middle of another call
                fcntl.flock(self._file, fcntl.LOCK_EX)
                self._catch_up(self._file)
                yield self._file
                if self._is_ending:  # the other call has unlocked the file
                    fcntl.flock(self._file, fcntl.LOCK_UN)
                return
            self._is_ending = False
            try:
                is_new = not self._path.exists()
                file = self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if is_new:
                        _sync_folder(self._path.parent)
                    self._catch_up(file)
                    yield file
                finally:
                    self._is_ending = True
                    fcntl.flock(file, fcntl.LOCK_UN)
                    self._file = None
                    os.close(file)
            except OSError as error:
                message = f"the dead letters at {self._path} cannot be kept: {error.strerror or error}"
                raise StoreUnavailable(message) from error

    def _append(self, file: int, event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(file, line) :]
        os.fsync(file)
        self._catch_up(file)

    def _catch_up(self, file: int) -> None:
        """Read the complete lines added since the last read; read a replaced file from its start."""
        found = os.fstat(file)
        if (found.st_dev, found.st_ino) != self._file_id or found.st_size < self._read_to:
            self._start_over()
            self._file_id = (found.st_dev, found.st_ino)
        with os.fdopen(os.dup(file), "rb") as reader:
            reader.seek(self._read_to)
            for line in reader:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                self._take_in(line)

    def _take_in(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            work_id = next(iter(event.values()))
            happened = next(iter(event))
            if happened == "recorded" and work_id not in self._kept:
                work = Work(event["name"], event["payload"], work_id)
                self._places.append(_Kept(DeadLetter(work, len(self._kept) + 1, 0)))
                self._kept[work_id] = self._places[-1]
        except (ValueError, AttributeError, StopIteration, KeyError, TypeError, InvalidInput):
            return  # half a line from a crash, or a line from an editor
        kept = self._kept.get(work_id)
        if kept is None:
            return
        letter = kept.letter
        match happened:
            case "attempt":
                kept.letter = replace(letter, attempts=letter.attempts + 1)
            case "again":
                kept.letter = replace(letter, recordings=letter.recordings + 1)
            case "put_back":
                kept.letter = replace(letter, attempts=max(0, letter.attempts - 1))
            case "failed":
                kept.letter = replace(letter, last_error=str(event.get("error")))
            case "done":
                kept.is_done = True


def _sync_folder(folder: Path) -> None:
    """Flush the folder too, so that the new file's name is on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
