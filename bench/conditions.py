"""The conditions of a measurement: versions, machine, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.cpu import core_count
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from bench.servers import Servers

PACKAGES: Final = ("segmented-locks", "locust", "gevent", "redis", "sqlalchemy", "psycopg", "hdrhistogram")
GIT_DESCRIBE: Final = ("git", "describe")
GIT_SECONDS: Final = 5


def conditions(servers: Servers) -> dict[str, Any]:
    """Return versions, cores, commit and the other conditions."""
    return {
        "versions": {"python": platform.python_version(), **package_versions(), **servers.versions},
        "cores": core_count(),
        "commit": commit(),
        "cpu_model": cpu_model(),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "settings": servers.settings,
        "model": "closed loop: every buyer orders again at once",
        "placement": "generator and embedded servers share the cores",
    }


def server_conditions(url: str, *packages: str) -> dict[str, Any]:
    """Return the conditions of a benchmark on one server; `packages` lists additional packages that matter."""
    with RedisStore.from_url(url) as store:
        info = store.client.info("server")
    name = str(info.get("server_name", "redis"))
    server = {name: str(info.get(f"{name}_version", info["redis_version"]))}
    return {
        "versions": {"python": platform.python_version(), **package_versions(*packages), **server},
        "cores": core_count(),
        "commit": commit(),
        "cpu_model": cpu_model(),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "transport": url.partition("://")[0],
    }


def package_versions(*more: str) -> dict[str, str]:
    """Return the versions of the packages that the figures depend on."""
    found = {}
    for package in (*PACKAGES, *more):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str | None:
    """Return the commit of this code, with `-dirty` if there are changes; None outside a repository."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    try:
        said = subprocess.run(  # noqa: S603  # a fixed command in this folder
            [*GIT_DESCRIBE, "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() or None


def cpu_model() -> str:
    """Return the processor's name if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
