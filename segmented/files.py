"""Files that a command writes, and files that hold a setting with a password.

A written file is checked before any change, and replaced atomically: a reader never sees half of it, and the old
content stays until the new text is complete. The name - is standard output.

A variable names the file of a setting: `SEGMENTED_URL_FILE` for SEGMENTED_URL. Container engines and service managers
pass secrets in this way: listing processes or describing a container does not show the file's content, and child
processes do not inherit it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from segmented.errors import InvalidInput
from segmented.masking import MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader

    class Lines(Protocol):
        """A binary file, or what unpacks one."""

        def readline(self, size: int, /) -> bytes:
            """Return the next line, or its first `size` bytes."""


STDOUT: Final = Path("-")
FILE_MODE: Final = 0o666
NAME_SHOWN: Final = 50
"""Maximum characters of the file's name in the temporary file's name, which must not be too long."""
FORMS: Final = {
    "SEGMENTED_URL": "a Redis URL, as redis://:PASSWORD@HOST:6379/0 is",
    "SEGMENTED_BROKER": "a broker's URL, as redis://:PASSWORD@HOST:6379/0 is",
    "SEGMENTED_DATABASE": "an order database's URL, as postgresql://USER:PASSWORD@HOST/DATABASE is",
}
"""The content of each file. An error quotes only this, because the wrong content may be the bare password."""
RULES: Final = "in a password, / ? # and @ are percent-encoded; unknown options are refused"
SUFFIX: Final = "_FILE"
FROM_FILE: Final = "@"
FROM_VARIABLE: Final = "env:"
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ADDRESS: Final = re.compile(r"://|[@:]")
"""In the name of a file, a mark of an address: then it may have a password, and no message shows it."""
BYTES_MAX: Final = 65_536
LINE_MAX: Final = 65_536
"""Maximum bytes of a line."""
MIB: Final = 1_048_576


def bounded_lines(
    raw: Lines, path: Path, *, size_max: int, line_max: int = LINE_MAX, of: str, cure: str = ""
) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, of a file of at most `size_max` MiB, unpacked. Raises InvalidInput.

    `of` is what the file should have, and `cure` how to allow a larger one, for the messages. A packed file may unpack
    to a thousand times its size.
    """
    left = size_max * MIB
    for number, line in enumerate(iter(lambda: raw.readline(line_max + 1), b""), start=1):
        left -= len(line)
        if len(line) > line_max:
            raise InvalidInput(f"{path}, line {number}: it is longer than {line_max:,} bytes: is this a file of {of}?")
        if left < 0:
            raise InvalidInput(f"{path}, line {number}: the file is larger than {size_max:,} MiB{cure}")
        yield number, line


def open_plain(file: Path) -> BufferedReader:
    """Open a plain file to read it. Raises OSError for anything else: a pipe would have us wait for its writer."""
    raw = os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        raw.close()
        raise OSError(errno.EINVAL, "it is not a plain file")
    return raw


def write_instead(file: Path, content: bytes) -> None:
    """Write a new file in the place of whatever has its name, never through a link or into a pipe. Raises OSError."""
    file.unlink(missing_ok=True)
    with file.open("xb") as new:
        new.write(content)


def check_writable(file: Path, option: str) -> None:
    """Raise InvalidInput if `option` does not name a writable file. Changes nothing."""
    if file == STDOUT:
        return
    try:
        mode = _mode(file)
        if stat.S_ISDIR(mode):
            raise InvalidInput(f"{option} {file} is a folder, not a file")
        if not stat.S_ISDIR(_mode(file.absolute().parent)):
            raise InvalidInput(f"{option} {file}: there is no folder {file.absolute().parent}")
        if mode and not stat.S_ISREG(mode):
            return  # a pipe or a device is written directly
        descriptor, trial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:NAME_SHOWN]}.")
        os.close(descriptor)
        Path(trial).unlink()
    except OSError as error:
        raise InvalidInput(f"{option} {file} cannot be written: {error.strerror}") from error


def check_kept(file: Path | None, option: str) -> None:
    """Raise InvalidInput if `option` does not name a writable file that can be read again. Changes nothing."""
    if file == STDOUT:
        raise InvalidInput(f"{option} {file} is standard output, which cannot be read again: name a file")
    if file is not None:
        check_writable(file, option)


def check_apart(files: dict[str, Path | None]) -> None:
    """Raise InvalidInput if two options name the same file, even by different spellings or links."""
    given = [(option, file) for option, file in files.items() if file is not None]
    for index, (option, file) in enumerate(given):
        for other, earlier in given[:index]:
            if _is_same(file, earlier):
                raise InvalidInput(f"{option} {file} is the file of {other}: name another file")


@contextmanager
def whole_file(file: Path, *, is_secret: bool = False) -> Iterator[TextIO]:
    """Open a file that replaces `file` when the block ends, and is removed if the block fails.

    If `is_secret`, other accounts cannot read it. Raises InvalidInput if it cannot be written.
    """
    if file == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
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
            if not is_secret:  # a temporary file is private
                beside.chmod(file.stat().st_mode if file.exists() else FILE_MODE & ~_umask())
            beside.replace(file)
        except BaseException:
            beside.unlink()
            raise
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror or error}") from error


def write_whole(file: Path, text: str, *, is_secret: bool = False) -> None:
    """Replace a file atomically. Raises InvalidInput if it cannot be written."""
    with whole_file(file, is_secret=is_secret) as written:
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


def said_elsewhere(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return an address: the text itself, the line of the file in `@FILE`, or the variable in `env:NAME`.

    Other accounts can read the command line of a process. Raises InvalidInput, without what a file or variable has, and
    without what stands in the place of their name by mistake: an address.
    """
    if text.startswith(FROM_FILE):
        return _one_line(text.removeprefix(FROM_FILE), "the address", "the address")
    if not text.startswith(FROM_VARIABLE):
        return text
    name = text.removeprefix(FROM_VARIABLE)
    if not environment.get(name):
        shown = repr(name) if not name or VARIABLE.fullmatch(name) else MASK
        raise InvalidInput(f"the variable {shown} that {FROM_VARIABLE} names is not set, or is empty")
    return environment[name]


def _one_line(file: str, who: str, what: str) -> str:
    """Return the one line of a file. Raises InvalidInput, which never shows its content."""
    shown = MASK if ADDRESS.search(file) else file
    try:
        with Path(file).open("rb") as found:  # of a pipe, such as `@<(command)` gives, until its writer ends
            written = found.read(BYTES_MAX + 1)
        lines = written.decode().splitlines()
    except OSError as error:
        raise InvalidInput(f"{who}: {shown} cannot be read: {error.strerror}") from None
    except ValueError:  # the error would contain its text; or its name has a NUL
        raise InvalidInput(f"{who}: {shown} is not valid UTF-8") from None
    if len(lines) != 1 or not lines[0].strip() or len(written) > BYTES_MAX:
        raise InvalidInput(f"{who}: {shown} should hold one line, {what}")
    return lines[0].strip()


def said_in_file(
    name: str, environment: Mapping[str, str] = os.environ, *, check: Callable[[str], object] | None = None
) -> str | None:
    """Return the one line of the file that the variable `name` + "_FILE" names, or None if that is unset or empty.

    Raises InvalidInput if `name` is set too, if the file cannot be read or does not have exactly one line, or if
    `check` raises it for that line. Messages never show the file's content.
    """
    variable = f"{name}{SUFFIX}"
    said = {key.upper(): value for key, value in environment.items() if key.upper() in {name, variable}}
    file = said.get(variable)
    if not file:
        return None
    if said.get(name):
        raise InvalidInput(f"{name} and {variable} are both set: set one of them")
    value = _one_line(file, variable, f"the value of {name}")
    if check is not None:
        try:
            check(value)
        except InvalidInput:  # it may quote the line
            raise InvalidInput(f"{variable}: {file} should hold {FORMS[name]} ({RULES})") from None
    return value
