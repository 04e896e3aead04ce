"""How programs on this machine find a running `segmented server` without its address.

The server writes its two URLs to a file in the account's runtime folder (XDG_RUNTIME_DIR), or in a private folder of
its temporary folder, and keeps the file locked. The system releases the lock of a dead process, so an unlocked file
announces nothing, whatever its content; a folder or file that another account can change is ignored. If an account runs
several servers, the first is announced for as long as it runs.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

PATIENCE_SECONDS: Final = 1.0
"""Time for a reader's check of the lock, and for a writer between lock and text."""
PAUSE_SECONDS: Final = 0.02
BYTES_MAX: Final = 65_536
FILE_NAME: Final = "segmented-server.json"
OPENING: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Does not follow a link, and does not wait for the other end of a pipe."""
NOTHING: Final = -1


class Announced(NamedTuple):
    """Where a running `segmented server` of this account listens."""

    url: str
    database: str


def announcement_file() -> Path:
    """Return the path: the same for all programs of an account with the same XDG_RUNTIME_DIR or, without it, TMPDIR."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or os.curdir)
    folder = runtime if _is_private(runtime) else Path(tempfile.gettempdir()) / f"segmented-{os.geteuid()}"
    return folder / FILE_NAME


@contextmanager
def announcing(url: str, database: str) -> Iterator[bool]:
    """Announce these servers during the block; false if others are announced, or the file cannot be written."""
    file = announcement_file()
    try:
        _make_private(file.parent)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | OPENING, 0o600)
    except OSError:
        yield False
        return
    try:
        is_ours = _is_trusted(fd) and _lock(fd)
        if is_ours:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({"url": url, "database": database}).encode(), 0)
        try:
            yield is_ours
        finally:
            if is_ours:
                os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def announced() -> Announced | None:
    """Return where the announced server of this account listens, if one runs."""
    try:
        import fcntl  # noqa: F401, PLC0415  # Windows has none, and no such server
    except ImportError:
        return None
    try:
        file = announcement_file()
        fd = os.open(file, os.O_RDONLY | OPENING) if _is_private(file.parent) else NOTHING
    except OSError:
        fd = NOTHING
    if fd == NOTHING:
        return None
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _is_trusted(fd) and _is_locked(fd):
            found = _parsed(os.pread(fd, BYTES_MAX, 0))
            if found is not None or time.monotonic() > deadline:
                return found
            time.sleep(PAUSE_SECONDS)
        return None
    finally:
        os.close(fd)


def _is_private(folder: Path) -> bool:
    """Return whether this is a folder, not a link, that belongs to us and that others cannot enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_ours and folder.is_absolute() and not found.st_mode & 0o077


def _make_private(folder: Path) -> None:
    """Create the folder if it is missing. Raises OSError if it is not private."""
    try:
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)  # the umask may have taken rights away
    except FileExistsError:
        if not _is_private(folder):
            raise


def _is_trusted(fd: int) -> bool:
    found = os.fstat(fd)
    return found.st_uid == os.geteuid() and stat.S_ISREG(found.st_mode) and not found.st_mode & 0o022


def _lock(fd: int) -> bool:
    import fcntl  # noqa: PLC0415  # Windows has none

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        else:
            return True
        time.sleep(PAUSE_SECONDS)


def _is_locked(fd: int) -> bool:
    """Return whether a server has the lock; readers take a shared one."""
    import fcntl  # noqa: PLC0415  # Windows has none

    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _parsed(written: bytes) -> Announced | None:
    try:
        said = json.loads(written)
        return Announced(str(said["url"]), str(said["database"]))
    except (ValueError, KeyError, TypeError):
        return None
