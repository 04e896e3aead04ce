"""A server's folders: a private one while it runs, and a claimed one for data that is kept."""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import secrets
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from segmented.errors import InvalidInput
from segmented.servers.account import Account, blocking_ancestors

ROOT: Final = 0
PRIVATE: Final = 0o700
PASSABLE: Final = 0o711
"""Mode of a folder that root creates above the data: the server's account can pass through it, and cannot list it."""
CURE: Final = "run as that account, or choose another folder"
LINKS_MAX: Final = 40
"""Maximum links on the way to a folder, as in Linux."""
ACCESS_LIST: Final = "system.posix_acl_access"
DEFAULT_LIST: Final = "system.posix_acl_default"
LIST_HEAD: Final = 4
LIST_ENTRY: Final = struct.Struct("<HHI")
"""Kind, rights, and the id of a user or group, in Linux."""
WITHOUT_LIST: Final = frozenset({errno.ENODATA, errno.ENOTSUP})
NAMED: Final = frozenset({0x02, 0x08})
"""Kinds of entries that name a user or a group."""
MAY_WRITE: Final = 0o2
OPENING: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def prepare_folder(folder: Path, owners: frozenset[int]) -> None:
    """Create a data folder and the missing ones above it, and check that no other account can change what it has.

    The folder belongs to one of `owners`, and those above it to us or root. Raises InvalidInput, which names the first
    folder that is not so, and the cure.
    """
    for path, is_last in _on_the_way(folder.absolute()):
        if is_last:  # the folder, or a link to it
            _make(path, PRIVATE)
            _check(path, path, owners, may_be_sticky=False)
            _check_default(path)
        else:
            _make(path, PASSABLE if os.geteuid() == ROOT else PRIVATE)
            _check(path, folder, frozenset({ROOT, os.geteuid()}), may_be_sticky=True)


def _on_the_way(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each folder and link that the system passes on its way to a folder, and whether it is the last of its path.

    The caller creates what is missing before it goes on. Raises OSError if there are too many links.
    """
    here, left, links = Path(folder.anchor), list(folder.parts[1:]), 0
    yield here, not left
    while left:
        name = left.pop(0)
        if name == os.pardir:
            here = here.parent  # not that of a link, which is replaced by its target below
            continue
        path = here / name
        yield path, not left
        if not path.is_symlink():
            here = path
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = path.readlink()
        if target.is_absolute():
            here = Path(target.anchor)
        left = [*target.parts[1 if target.is_absolute() else 0 :], *left]


def check_content(folder: Path, owners: frozenset[int]) -> None:
    """Refuse a data folder with a file, folder or link of another account in it, two levels deep: it was prepared."""
    below = [entry for one in folder.iterdir() if one.is_dir() and not one.is_symlink() for entry in one.iterdir()]
    for entry in (*folder.iterdir(), *below):
        found = entry.lstat()
        if found.st_uid not in owners:
            message = f"data folder {folder} holds {entry.name!r} of another account, {_name(found.st_uid)}: {CURE}"
            raise InvalidInput(message)
        if stat.S_ISLNK(found.st_mode):
            raise InvalidInput(f"data folder {folder} holds a link, {entry.name!r}: put what it points to in its place")
        if _others_may_write(entry, found):
            raise InvalidInput(
                f"data folder {folder} holds {entry.name!r}, which other accounts can write: run `chmod go-w {entry}`"
            )


def open_own(path: Path, owners: frozenset[int]) -> int:
    """Open a file that we keep, without following a link or waiting for a pipe. Raises OSError or InvalidInput."""
    fd = os.open(path, OPENING, 0o600)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners or found.st_nlink != 1:
        os.close(fd)
        raise InvalidInput(f"{path} is not a plain file of ours: remove it, or choose another folder")
    return fd


def _make(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        return
    for name in (ACCESS_LIST, DEFAULT_LIST):
        _remove_list(folder, name)
    folder.chmod(mode)  # the umask may have taken rights away


def _check_default(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and _list_lets_others_write(folder, DEFAULT_LIST):
        raise InvalidInput(
            f"data folder {folder} lets other accounts write in each new file, by a default access control list: run "
            f"`setfacl -k {folder}`, or choose another folder"
        )


def _check(folder: Path, data: Path, owners: frozenset[int], *, may_be_sticky: bool) -> None:
    found = folder.lstat()
    if found.st_uid not in owners:
        which = "belongs" if folder == data else f"is below {folder}, which belongs"
        raise InvalidInput(f"data folder {data} {which} to another account, {_name(found.st_uid)}: {CURE}")
    if stat.S_ISLNK(found.st_mode):
        return  # its owner is trusted, and the folders that it leads to are checked
    if _others_may_write(folder, found) and not (may_be_sticky and found.st_mode & stat.S_ISVTX):
        which = "can be written" if folder == data else f"is below {folder}, which can be written"
        message = f"data folder {data} {which} by other accounts: run `chmod go-w {folder}`, or choose another folder"
        raise InvalidInput(message)


def _others_may_write(path: Path, found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:  # with an access control list, this is the most that it gives to anybody named
        return False
    return not _is_private_group(found) or _list_lets_others_write(path, ACCESS_LIST)


def _remove_list(folder: Path, name: str) -> None:
    if sys.platform != "linux":
        return
    try:
        os.removexattr(folder, name, follow_symlinks=False)
    except OSError as error:
        if error.errno not in WITHOUT_LIST:
            raise


def _list_lets_others_write(path: Path, name: str) -> bool:
    """Return whether an access control list names a user or group that may write. Only Linux has such lists here."""
    if sys.platform != "linux":
        return False
    try:
        entries = os.getxattr(path, name, follow_symlinks=False)[LIST_HEAD:]
    except OSError as error:
        if error.errno in WITHOUT_LIST:
            return False
        raise
    return any(kind in NAMED and rights & MAY_WRITE for kind, rights, _ in LIST_ENTRY.iter_unpack(entries))


def _is_private_group(found: os.stat_result) -> bool:
    """Return whether the group has its owner as the only member, as many systems give each user one."""
    if found.st_gid == ROOT and found.st_uid == ROOT:
        return True
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid)
    except KeyError:
        return False
    return owner.pw_gid == found.st_gid and group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


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

        With an account, the folder and its content may belong to it.

        The claim is a file lock, which the system releases when its process dies. The server inherits it: while any of
        its processes lives, even after our death, no other server gets the folder.
        """
        if "\0" in str(folder):
            raise InvalidInput(f"data folder {str(folder)!r} cannot be used: no path has a NUL in it")
        owners = frozenset({os.geteuid()} if account is None else {os.geteuid(), account.user})
        try:
            prepare_folder(folder, owners)
            fd = open_own(folder / LOCK_NAME, owners)
        except OSError as error:
            raise InvalidInput(f"data folder {folder} cannot be used: {error.strerror}") from error
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
