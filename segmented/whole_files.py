"""Files that a command writes: checked before any change, and replaced atomically.

A reader never sees half of such a file, and the old content stays until the new text is complete.
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
"""Maximum characters of the file's name in the temporary file's name, which must not be too long."""


def check_writable(file: Path, option: str) -> None:
    """Raise InvalidInput if `option` does not name a writable file. Changes nothing."""
    try:
        mode = _mode(file)
        if stat.S_ISDIR(mode):
            message = f"{option} {file} is a folder, not a file"
            raise InvalidInput(message)
        if not stat.S_ISDIR(_mode(file.absolute().parent)):
            message = f"{option} {file}: there is no folder {file.absolute().parent}"
            raise InvalidInput(message)
        if mode and not stat.S_ISREG(mode):
            return  # a pipe or a device is written directly
        descriptor, trial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:NAME_SHOWN]}.")
        os.close(descriptor)
        Path(trial).unlink()
    except OSError as error:
        message = f"{option} {file} cannot be written: {error.strerror}"
        raise InvalidInput(message) from error


def check_apart(files: dict[str, Path | None]) -> None:
    """Raise InvalidInput if two options name the same file, even by different spellings or links."""
    given = [(option, file) for option, file in files.items() if file is not None]
    for index, (option, file) in enumerate(given):
        for other, earlier in given[:index]:
            if _is_same(file, earlier):
                message = f"{option} {file} is the file of {other}: name another file"
                raise InvalidInput(message)


@contextmanager
def whole_file(file: Path) -> Iterator[TextIO]:
    """Open a file that replaces `file` when the block ends, and is removed if the block fails.

    Raises InvalidInput if it cannot be written.
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
    """Replace a file atomically. Raises InvalidInput if it cannot be written."""
    with whole_file(file) as written:
        written.write(text)


def _mode(file: Path) -> int:
    """Return a file's mode, or 0 if there is no file. Since 3.14 `Path.exists` is also False for an impossible name."""
    try:
        return file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist yet
        return one.resolve() == other.resolve()


def _umask() -> int:
    """Return the umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
