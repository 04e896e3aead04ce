"""The builds that are compared: `segmented` of a commit, of a folder, or as it is here, each copied to a folder.

The bench itself is the one here for both, so only the library differs. A measuring process finds its build by
PYTHONPATH, before any other `segmented`.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import segmented
from bench.conditions import CHECKOUT, git
from segmented.errors import InvalidInput

PACKAGE: Final = "segmented"
IMPORT_SECONDS: Final = 60.0
GIT_SECONDS: Final = 60.0
MODULE: Final = "bench.engine.run_cell"
HERE: Final = "the code here"
_WHERE: Final = f"import segmented, {MODULE}; print(segmented.__file__)"


@dataclass(frozen=True, slots=True)
class Build:
    """A copy of the library."""

    said: str
    """Description, for messages and results."""
    folder: Path
    """The folder that has the package."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this build."""
        others = [path for path in sys.path if path and Path(path).is_dir()]
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), *others])}


def build_here(folder: Path) -> Build:
    """Copy the library that runs here, so that edits during the measurement do not reach it."""
    return _checked(Build(HERE, _copied(Path(segmented.__file__).parent, folder, HERE)))


def build_of(spec: str, folder: Path) -> Build:
    """Return the library of a commit, or of a folder that has `segmented`. Raises InvalidInput if it cannot be used."""
    if _is_folder(spec):
        said = f"the folder {spec}"
        return _checked(Build(said, _copied(Path(spec) / PACKAGE, folder, said)))
    if not (CHECKOUT / ".git").exists():
        message = f"--against {spec}: neither a folder with {PACKAGE!r} in it nor, outside of a checkout, a commit"
        raise InvalidInput(message)
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{spec}^{{commit}}").decode().strip()
    if not commit:
        message = f"--against {spec}: neither a commit of this checkout nor a folder with {PACKAGE!r} in it"
        raise InvalidInput(message)
    packed = _git("archive", "--format=zip", commit, "--", PACKAGE)
    if not packed:
        message = f"--against {spec}: the commit {commit[:12]} has no folder {PACKAGE!r}"
        raise InvalidInput(message)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)
    return _checked(Build(f"commit {commit[:12]}", folder))


def _is_folder(spec: str) -> bool:
    try:
        return (Path(spec) / PACKAGE / "__init__.py").is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _copied(package: Path, folder: Path, said: str) -> Path:
    """Copy the package's files into the folder, and return that. Raises InvalidInput for what is no file or folder."""
    for path in package.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            message = f"{said} cannot be measured: {path} is not a plain file"
            raise InvalidInput(message)
    try:
        shutil.copytree(package, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    except (OSError, shutil.Error) as error:
        message = f"{said} cannot be measured: its files cannot be copied: {error}"
        raise InvalidInput(message) from error
    return folder


def _git(*words: str) -> bytes:
    """Run git in the checkout; return nothing if it fails."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        return git(*words, seconds=GIT_SECONDS)
    return b""


def _checked(build: Build) -> Build:
    """Import the build and this bench together in a fresh process. Raises InvalidInput."""
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-P", "-c", _WHERE],
            env=build.environment,
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{build.said} cannot be measured: its import did not end within {IMPORT_SECONDS:g} s"
        raise InvalidInput(message) from error
    if done.returncode:
        last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        message = f"{build.said} cannot be measured with this bench: {last}"
        raise InvalidInput(message)
    found = Path(done.stdout.strip())
    if not found.is_relative_to(build.folder):
        message = f"{build.said} cannot be measured: Python imports {found} instead of it"
        raise InvalidInput(message)
    return build
