"""Files that a command writes: checked before anything is changed, and written in one step.

A reader of such a file never sees half of it, and what stood there before stays until the new text is whole.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

FILE_MODE: Final = 0o666
NAME_SHOWN: Final = 50
"""Characters of a file's name in that of the file beside it, which must not be longer than names may be."""


def check_writable(file: Path, option: str) -> None:
    """Raise InvalidInput, with one sentence, where `option` names no file that can be written. Changes nothing."""
    try:
        mode = _mode(file)
        if stat.S_ISDIR(mode):
            message = f"{option} {file} is a folder, not a file"
            raise InvalidInput(message)
        if not stat.S_ISDIR(_mode(file.absolute().parent)):
            message = f"{option} {file}: there is no folder {file.absolute().parent}"
            raise InvalidInput(message)
        if mode and not stat.S_ISREG(mode):
            return  # a pipe or a device: it is written to as it is
        descriptor, trial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:NAME_SHOWN]}.")
        os.close(descriptor)
        Path(trial).unlink()
    except OSError as error:
        message = f"{option} {file} cannot be written: {error.strerror}"
        raise InvalidInput(message) from error


def check_apart(files: dict[str, Path | None]) -> None:
    """Raise InvalidInput where two options name the same file, however it is spelled or linked."""
    given = [(option, file) for option, file in files.items() if file is not None]
    for index, (option, file) in enumerate(given):
        for other, earlier in given[:index]:
            if _is_same(file, earlier):
                message = f"{option} {file} is the file of {other}: name another file"
                raise InvalidInput(message)


@contextmanager
def whole_file(file: Path) -> Iterator[TextIO]:
    """Open a file that takes the place of `file` when the block ends, and is removed if the block fails.

    Raises InvalidInput when it cannot be written.
    """
    try:
        if file.exists() and not file.is_file():
            with file.open("w", encoding="utf-8", newline="") as there:
                yield there
            return
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:NAME_SHOWN]}.")
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as written:
                yield written
                written.flush()
                os.fsync(written.fileno())
            beside.chmod(file.stat().st_mode if file.exists() else FILE_MODE & ~_umask())
            beside.replace(file)
        except BaseException:
            beside.unlink()
            raise
    except OSError as error:
        message = f"{file} cannot be written: {error.strerror or error}"
        raise InvalidInput(message) from error


def write_whole(file: Path, text: str) -> None:
    """Write a file in one step. Raises InvalidInput when it cannot be written."""
    with whole_file(file) as written:
        written.write(text)


def _mode(file: Path) -> int:
    """Return a file's mode; 0 where there is none. From 3.14 on `Path.exists` is also False for an impossible name."""
    try:
        return file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return one.resolve() == other.resolve()


def _umask() -> int:
    """Return what the user wants withheld from new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
