"""A server's folders: a private one while it runs, a claimed one for data that is kept, and the account that owns them.

PostgreSQL refuses to run as root, so root runs it as an account without privileges, `pgserver`, which is created if it
is missing. For a normal user, nothing of this applies. The modes of existing folders are never changed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from segmented.errors import InvalidInput

ACCOUNT_NAME: Final = "pgserver"
SYSTEM_PATH: Final = "/usr/sbin:/sbin:/usr/bin:/bin"
USERADD_SECONDS: Final = 20.0
LOOKS_MAX: Final = 20
"""Wait after a failed `useradd`: another process may be creating the same account."""
events: Final = logging.getLogger("segmented.servers")


@dataclass(frozen=True, slots=True)
class Account:
    """A user and its group, by number."""

    name: str
    user: int
    group: int


def server_account() -> Account | None:
    """Return the account that PostgreSQL runs as, or None for the current one."""
    return None if os.geteuid() != 0 else _find() or _create()


def is_reachable(path: Path, account: Account | None) -> bool:
    """Return whether the account may traverse every folder above `path`, and read and execute `path`."""
    if account is None:
        return True
    return _allows(path, account, stat.S_IROTH | stat.S_IXOTH) and not blocking_ancestors(path, account)


def blocking_ancestors(path: Path, account: Account) -> list[Path]:
    """Return the folders above `path` that the account may not traverse."""
    return [folder for folder in path.resolve().parents if not _allows(folder, account, stat.S_IXOTH)]


def check_passable(path: Path, account: Account) -> None:
    """Raise InvalidInput for a folder above `path` that the account may not traverse."""
    for folder in blocking_ancestors(path, account):
        raise InvalidInput(
            f"PostgreSQL runs as the account {account.name}, which may not pass {folder} to the data in {path}: "
            f"run `chmod o+x {folder}`, or choose another folder"
        )


def _allows(path: Path, account: Account, rights_of_others: int) -> bool:
    """Return whether the account has the rights, as the owner, through the group, or as others."""
    found = path.stat()
    wanted = rights_of_others << (6 if found.st_uid == account.user else 3 if found.st_gid == account.group else 0)
    return found.st_mode & wanted == wanted


def _find() -> Account | None:
    try:
        found = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        return None
    return Account(ACCOUNT_NAME, found.pw_uid, found.pw_gid)


def _create() -> Account:
    useradd = shutil.which("useradd", path=SYSTEM_PATH)
    if useradd is None:
        raise InvalidInput(
            f"PostgreSQL does not run as root, and the account {ACCOUNT_NAME!r} cannot be made without useradd: "
            "run as another user, or give a --database"
        )
    argv = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT_NAME]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=USERADD_SECONDS, check=False)  # noqa: S603  # fixed words
    account = _find()
    for _ in range(0 if done.returncode == 0 else LOOKS_MAX):
        if account is not None:
            break
        time.sleep(0.05)
        account = _find()
    if account is None:
        reason = " ".join(done.stderr.split()) or f"code {done.returncode}"
        message = f"PostgreSQL does not run as root, and useradd could not make the account {ACCOUNT_NAME!r}: {reason}"
        raise InvalidInput(message)
    if done.returncode == 0:
        events.warning("server.account_created", extra={"account": ACCOUNT_NAME})
    return account


events.addHandler(logging.NullHandler())  # without it, Python prints warnings that no program requested


ROOT: Final = 0
PRIVATE: Final = 0o700
PASSABLE: Final = 0o711
"""Mode of a folder that root creates above the data: the server's account can pass through it, and cannot list it."""
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
OPENING: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def prepare_folder(folder: Path, owners: frozenset[int]) -> None:
    """Create a data folder, an absolute path without links, and check that no other account can change it.

    The folder belongs to one of `owners`, and those above it to us or root. Raises InvalidInput, which names the first
    folder that is not so, and the cure.
    """
    for path in reversed(folder.parents):
        _make(path, PASSABLE if os.geteuid() == ROOT else PRIVATE)
        found = path.stat()
        is_open = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        _check(found, path, f"data folder {folder} is below {path}, which", {ROOT, os.geteuid()}, is_open=bool(is_open))
    _make(folder, PRIVATE)
    found = folder.lstat()
    _check(found, folder, f"data folder {folder}", owners, is_open=bool(found.st_mode & OTHERS_WRITE))


def _make(folder: Path, mode: int) -> None:
    with suppress(FileExistsError):  # also of another start at the same moment
        folder.mkdir(mode=mode)
        folder.chmod(mode)  # the umask may have taken rights away, and an access control list given some


def _check(found: os.stat_result, folder: Path, said: str, owners: Collection[int], *, is_open: bool) -> None:
    if found.st_uid not in owners:
        try:
            name = pwd.getpwuid(found.st_uid).pw_name
        except KeyError:
            name = str(found.st_uid)
        raise InvalidInput(f"{said} belongs to another account, {name}: run as that account, or choose another folder")
    if is_open:
        message = f"{said} can be written by other accounts: run `chmod go-w {folder}`, or choose another folder"
        raise InvalidInput(message)


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
    raise InvalidInput(f"none of the temporary folders {', '.join(dict.fromkeys(bases))} can hold a server's socket")


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

        With an account, the folder may belong to it.

        The claim is a file lock, which the system releases when its process dies. The server inherits it: while any of
        its processes lives, even after our death, no other server gets the folder.
        """
        if "\0" in str(folder):
            raise InvalidInput(f"data folder {str(folder)!r} cannot be used: no path has a NUL in it")
        owners = frozenset({os.geteuid()} if account is None else {os.geteuid(), account.user})
        try:
            folder = folder.resolve()  # once, so that whoever may change a link changes nothing
            prepare_folder(folder, owners)
            fd = os.open(folder / LOCK_NAME, OPENING, 0o600)
        except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError before Python 3.13
            raise InvalidInput(f"data folder {folder} cannot be used: {getattr(error, 'strerror', error)}") from error
        try:
            _lock(fd)
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
