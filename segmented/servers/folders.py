"""A server's folders: a private one while it runs, and a claimed one for data that is kept."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput
from segmented.servers.account import blocking_ancestors
from segmented.servers.ownership import check_content, open_own, prepare_folder

if TYPE_CHECKING:
    from segmented.servers.account import Account

SOCKET_PATH_BYTES_MAX: Final = 103
"""Maximum length of a socket's path: 107 on Linux, 103 on macOS."""
SOCKET_NAME_LONGEST: Final = ".s.PGSQL.5432"
LOCK_NAME: Final = "lock"
DYING_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.02


def private_folder(account: Account | None = None) -> Path:
    """Return the path of a folder, not created yet, that is short enough for a socket and reachable for the account.

    The run-time folder of a login (XDG_RUNTIME_DIR) is not a candidate: it is in memory, where a database with fsync
    would look faster than it is.
    """
    bases = (tempfile.gettempdir(), "/tmp", "/var/tmp")  # noqa: S108  # what is made there has a random name and 0700
    for base in bases:
        folder = Path(base).absolute() / f"segmented-{secrets.token_hex(4)}"
        if os.access(folder.parent, os.W_OK | os.X_OK) and is_short(folder) and _can_pass(folder, account):
            return folder
    message = f"none of the temporary folders {', '.join(dict.fromkeys(bases))} can hold a server's socket"
    raise InvalidInput(message)


def is_short(folder: Path) -> bool:
    """Return whether the path of a socket in this folder is short enough for the system."""
    return len(os.fsencode(folder / SOCKET_NAME_LONGEST)) <= SOCKET_PATH_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Claim:
    """A data folder that no second server can use while `fd` is open, here or in the server itself."""

    folder: Path
    fd: int

    @classmethod
    def take(cls, folder: Path, account: Account | None = None) -> Claim:
        """Create the folder if needed and claim it; raises InvalidInput if it is in use, or not ours alone.

        With an account, the folder and its content may belong to it.

        The claim is a file lock, which the system releases when its process dies. The server inherits it: while any of
        its processes lives, even after our death, no other server gets the folder.
        """
        if "\0" in str(folder):
            message = f"data folder {str(folder)!r} cannot be used: no path has a NUL in it"
            raise InvalidInput(message)
        owners = frozenset({os.geteuid()} if account is None else {os.geteuid(), account.user})
        try:
            prepare_folder(folder, owners)
            fd = open_own(folder / LOCK_NAME, owners)
        except OSError as error:
            message = f"data folder {folder} cannot be used: {error.strerror}"
            raise InvalidInput(message) from error
        try:
            _lock(fd)
            check_content(folder, owners)
        except InvalidInput:
            os.close(fd)
            raise
        except OSError as error:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            message = f"data folder {folder} cannot be locked: {error.strerror}"
            if isinstance(error, BlockingIOError):
                message = f"data folder {folder} is in use by a server that process {owner} started"
            raise InvalidInput(message) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return cls(folder, fd)

    def hand_over(self) -> None:
        """Close our copy of the claim: from now on it lives as long as the guard and the server."""
        os.close(self.fd)


def _lock(fd: int) -> None:
    """Lock the file; the processes of a server that was just killed may need a moment to end."""
    deadline = time.monotonic() + DYING_SECONDS
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)


def _can_pass(folder: Path, account: Account | None) -> bool:
    return account is None or not blocking_ancestors(folder, account)
