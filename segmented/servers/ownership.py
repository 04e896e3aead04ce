"""Checks that only we can change a data folder: it is ours, and so is every folder above it.

Another account that can write in the folder, or in one above it, chooses the files that the servers load, and these can
name code to run: an append-only file of Valkey may contain MODULE LOAD. So each folder from the root on belongs to us
or to root, and nobody else may write in it; a sticky folder such as /tmp is allowed above the data, since others cannot
rename or remove our folders there. What the folder has in it belongs to us as well. Files are opened without following
links. Nothing here changes the mode of a folder that existed before.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from segmented.errors import InvalidInput

ROOT: Final = 0
PRIVATE: Final = 0o700
PASSABLE: Final = 0o711
"""Mode of a folder that root creates above the data: the server's account can pass through it, and cannot list it."""
CURE: Final = "run as that account, or choose another folder"
OPENING: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def prepare_folder(folder: Path, owners: frozenset[int]) -> None:
    """Create a data folder and the missing ones above it, and check that no other account can change what it has.

    The folder belongs to one of `owners`, and those above it to us or root. Raises InvalidInput, which names the first
    folder that is not so, and the cure.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  # resolves no links, which are checked too
    above = [parent for path in (folder, folder.resolve()) for parent in reversed(path.parents)]
    for parent in dict.fromkeys(above):
        _make(parent, PASSABLE if os.geteuid() == ROOT else PRIVATE)
        _check(parent, folder, frozenset({ROOT, os.geteuid()}), may_be_sticky=True)
    _make(folder, PRIVATE)
    for path in (folder, folder.resolve()):  # the same, unless it is a link
        _check(path, path, owners, may_be_sticky=False)


def check_content(folder: Path, owners: frozenset[int]) -> None:
    """Refuse a data folder with a file, folder or link of another account in it, two levels deep: it was prepared."""
    below = [entry for one in folder.iterdir() if one.is_dir() and not one.is_symlink() for entry in one.iterdir()]
    for entry in (*folder.iterdir(), *below):
        found = entry.lstat()
        if found.st_uid not in owners:
            message = f"data folder {folder} holds {entry.name!r} of another account, {_name(found.st_uid)}: {CURE}"
            raise InvalidInput(message)
        if stat.S_ISLNK(found.st_mode):
            message = f"data folder {folder} holds a link, {entry.name!r}: put what it points to in its place"
            raise InvalidInput(message)
        if _others_may_write(found):
            message = (
                f"data folder {folder} holds {entry.name!r}, which other accounts can write: run `chmod go-w {entry}`"
            )
            raise InvalidInput(message)


def open_own(path: Path, owners: frozenset[int]) -> int:
    """Open a file that we keep, without following a link or waiting for a pipe. Raises OSError or InvalidInput."""
    fd = os.open(path, OPENING, 0o600)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners or found.st_nlink != 1:
        os.close(fd)
        message = f"{path} is not a plain file of ours: remove it, or choose another folder"
        raise InvalidInput(message)
    return fd


def _make(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        return
    folder.chmod(mode)  # the umask may have taken rights away


def _check(folder: Path, data: Path, owners: frozenset[int], *, may_be_sticky: bool) -> None:
    found = folder.lstat()
    if found.st_uid not in owners:
        which = "belongs" if folder == data else f"is below {folder}, which belongs"
        message = f"data folder {data} {which} to another account, {_name(found.st_uid)}: {CURE}"
        raise InvalidInput(message)
    if stat.S_ISLNK(found.st_mode):
        return  # its owner is trusted, and the folders that it leads to are checked
    if _others_may_write(found) and not (may_be_sticky and found.st_mode & stat.S_ISVTX):
        which = "can be written" if folder == data else f"is below {folder}, which can be written"
        message = f"data folder {data} {which} by other accounts: run `chmod go-w {folder}`, or choose another folder"
        raise InvalidInput(message)


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private_group(found)


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
