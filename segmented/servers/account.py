"""The account that PostgreSQL runs as: it refuses to run as root, so root runs it as an account without privileges.

For a normal user, nothing of this applies. For root, the account `pgserver` is created if it is missing. The modes of
existing folders are never changed.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import stat
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

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
    if found.st_uid == account.user:
        wanted = rights_of_others << 6
    elif found.st_gid == account.group:
        wanted = rights_of_others << 3
    else:
        wanted = rights_of_others
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
