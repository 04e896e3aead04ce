"""The comparison: every row on every lock, with its conditions.

Each row runs in its own process, in the environment of its lock.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.conditions import named_version
from bench.environments import ROOT, last_line
from segmented.errors import InvalidInput, SegmentedError
from segmented.servers import ValkeyServer
from tests.conformance.common import chosen, conditions
from tests.conformance.locks.registry import OURS, PEERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.conformance.locks.registry import Peer

    Tell = Callable[[str], None]
    PythonOf = Callable[[Peer], Path]

SERVERS: Final = 3
MODULE: Final = "tests.support.contract.locks.run_row"
ROW_SECONDS: Final = 60.0
"""Seconds after which a hanging lock is stopped and has failed the row."""


def compare(*, peers: Sequence[str], rows: Sequence[str], python_of: PythonOf, tell: Tell) -> dict[str, Any]:
    """Run `rows` (default: all) on the locks of `peers` (default: all and ours), and return the results.

    `python_of` returns the interpreter of a peer's environment. Raises InvalidInput for an unknown name, and
    SegmentedError for a row that could not be run.
    """
    there_is = inventory(Path(sys.executable))
    wanted = chosen(rows, [row["id"] for row in there_is["rows"]], "row")
    who = chosen(peers, [OURS, *(peer.name for peer in PEERS)], "peer")
    with ExitStack() as stack:
        servers = [stack.enter_context(ValkeyServer.start()) for _ in range(SERVERS)]
        urls = [server.url for server in servers]
        found = []
        for python, contender, is_ours in _contenders(who, there_is["ours"], python_of):
            found.append(_run_rows(python, contender, wanted, urls, tell) | {"is_ours": is_ours})
        return {
            "conditions": _conditions(urls[0]),
            "rows": [row for row in there_is["rows"] if row["id"] in wanted],
            "contenders": found,
        }


def _contenders(who: Sequence[str], ours: Sequence[str], python_of: PythonOf) -> Iterator[tuple[Path, str, bool]]:
    if OURS in who:
        for contender in ours:
            yield Path(sys.executable), contender, True
    for peer in PEERS:
        if peer.name in who:
            python = python_of(peer)
            for contender in peer.adapters:
                yield python, contender, False


def _run_rows(python: Path, contender: str, rows: Sequence[str], urls: Sequence[str], tell: Tell) -> dict[str, Any]:
    who: dict[str, Any] = {"title": contender, "colour": "unknown", "versions": {}}
    results = {}
    for row_id in rows:
        said = run_row(python, contender, row_id, urls)
        if said is None:
            result = {"outcome": "failed", "why": f"it had not ended after {ROW_SECONDS:g} s", "seconds": ROW_SECONDS}
        else:
            who = {name: said[name] for name in ("title", "colour", "versions")}
            result = {name: said[name] for name in ("outcome", "why", "seconds")}
        results[row_id] = result
        tell(f"{contender.rpartition(':')[2]} {row_id}: {result['outcome']} {result['why']}".rstrip())
    return {**who, "results": results}


def _conditions(url: str) -> dict[str, Any]:
    with redis.Redis.from_url(url, decode_responses=True) as server:
        about = named_version(server.info("server"))
    return conditions(
        {
            "server": " ".join(about),
            "python": platform.python_version(),
            "load_before": round(os.getloadavg()[0], 2),
        }
    )


def inventory(python: Path) -> dict[str, Any]:
    """Return all rows and this library's own contenders. Raises InvalidInput outside a working copy."""
    if not (ROOT / Path(*MODULE.split("."))).with_suffix(".py").is_file():
        raise InvalidInput(f"the suite is not here: run this from a working copy of the repository, not in {ROOT}")
    found: dict[str, Any] = _said(python, (), ROW_SECONDS) or {}
    return found


def run_row(
    python: Path, contender: str, row_id: str, urls: Sequence[str], *, seconds_max: float = ROW_SECONDS
) -> dict[str, Any] | None:
    """Run a row, and return the process's result, or None if it had to be stopped."""
    return _said(python, (contender, row_id, *urls), seconds_max)


def _said(python: Path, arguments: Sequence[str], seconds: float) -> dict[str, Any] | None:
    child = subprocess.Popen(  # our own module
        [str(python), "-m", MODULE, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complaints = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    if child.returncode != 0:
        why = last_line(complaints, f"exit code {child.returncode}")
        raise SegmentedError(f"{' '.join(arguments[:2])} could not be run: {why}")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found
