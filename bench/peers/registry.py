"""The peers of the suite, each with its pinned environment and adapters.

One virtual environment per peer, created from its pinned requirements, and again when those change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
ADAPTERS: Final = "bench.peers.adapters"
MAKE_SECONDS: Final = 300
STAMP: Final = "made-from"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with pinned packages."""

    name: str
    folder: Path = HERE
    """Folder of its file of requirements."""

    @property
    def requirements(self) -> Path:
        """Return the file of pinned requirements."""
        return self.folder / f"requirements-{self.name}.txt"


@dataclass(frozen=True, slots=True)
class Peer(Environment):
    """Another library."""

    adapters: tuple[str, ...] = ()
    """`MODULE:CLASS` of each of its locks."""


PEERS: Final = (
    Peer("redis-py", adapters=(f"{ADAPTERS}.redis_py:RedisPyLock", f"{ADAPTERS}.redis_py_asyncio:RedisPyAsyncLock")),
    Peer("python-redis-lock", adapters=(f"{ADAPTERS}.python_redis_lock:PythonRedisLock",)),
    Peer(
        "pottery",
        adapters=(f"{ADAPTERS}.pottery_redlock:PotteryRedlock", f"{ADAPTERS}.pottery_aioredlock:PotteryAIORedlock"),
    ),
    Peer("sherlock", adapters=(f"{ADAPTERS}.sherlock_redis:SherlockRedisLock",)),
)
OURS: Final = "segmented"
"""The name of this library's own locks in the comparison."""


def interpreter_of(peer: Environment, folder: Path) -> Path:
    """Return the interpreter of the peer's environment under `folder`. Raises SegmentedError if creating it fails."""
    environment = folder / peer.name
    python = environment / "bin" / "python"
    if is_made(peer, folder):
        return python
    shutil.rmtree(environment, ignore_errors=True)
    _run(peer, [sys.executable, "-m", "venv", str(environment)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(peer, [*pip, "--no-deps", "--requirement", str(peer.requirements)])
    (environment / STAMP).write_text(_digest(peer), encoding="utf-8")
    return python


def is_made(peer: Environment, folder: Path) -> bool:
    """Return whether its environment exists with the present requirements."""
    stamp = folder / peer.name / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _digest(peer)


def _digest(peer: Environment) -> str:
    return hashlib.sha256(peer.requirements.read_bytes() + sys.version.encode()).hexdigest()


def _run(peer: Environment, command: Sequence[str]) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAKE_SECONDS, env=plain)  # noqa: S603  # our own
    except subprocess.CalledProcessError as error:
        last_words = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        message = f"the environment of {peer.name} cannot be made: {last_words}"
        raise SegmentedError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"the environment of {peer.name} was not made within {MAKE_SECONDS} s"
        raise SegmentedError(message) from error
