"""The comparison: every row on every lock, with its conditions."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.conditions import commit, cpu_model
from bench.cpu import core_count
from bench.peers.registry import OURS, PEERS
from bench.peers.rows import ROW_SECONDS, inventory, run_row
from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.peers.registry import Peer

    Tell = Callable[[str], None]
    PythonOf = Callable[[Peer], Path]

SERVERS: Final = 3


def compare(
    *, peers: Sequence[str], rows: Sequence[str], python_of: PythonOf, tell: Tell, seconds_max: float = ROW_SECONDS
) -> dict[str, Any]:
    """Run `rows` (default: all) on the locks of `peers` (default: all and ours), and return the results.

    `python_of` returns the interpreter of a peer's environment. Raises InvalidInput for an unknown name, and
    SegmentedError for a row that could not be run.
    """
    there_is = inventory(Path(sys.executable))
    wanted = _chosen(rows, [row["id"] for row in there_is["rows"]], "row")
    who = _chosen(peers, [OURS, *(peer.name for peer in PEERS)], "peer")
    with ExitStack() as stack:
        servers = [stack.enter_context(ValkeyServer.start()) for _ in range(SERVERS)]
        urls = [server.url for server in servers]
        found = []
        for python, contender, is_ours in _contenders(who, there_is["ours"], python_of):
            found.append(_run_rows(python, contender, wanted, urls, tell, seconds_max) | {"is_ours": is_ours})
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


def _run_rows(
    python: Path, contender: str, rows: Sequence[str], urls: Sequence[str], tell: Tell, seconds_max: float
) -> dict[str, Any]:
    who: dict[str, Any] = {"title": contender, "colour": "unknown", "versions": {}}
    results = {}
    for row_id in rows:
        said = run_row(python, contender, row_id, urls, seconds_max=seconds_max)
        if said is None:
            result = {"outcome": "failed", "why": f"it had not ended after {seconds_max:g} s", "seconds": seconds_max}
        else:
            who = {name: said[name] for name in ("title", "colour", "versions")}
            result = {name: said[name] for name in ("outcome", "why", "seconds")}
        results[row_id] = result
        tell(f"{contender.rpartition(':')[2]} {row_id}: {result['outcome']} {result['why']}".rstrip())
    return {**who, "results": results}


def _conditions(url: str) -> dict[str, Any]:
    with redis.Redis.from_url(url, decode_responses=True) as server:
        about = server.info("server")
    name = about.get("server_name", "redis")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "server": f"{name} {about.get(f'{name}_version', about['redis_version'])}",
        "python": platform.python_version(),
        "cores": core_count(),
        "cpu_model": cpu_model(),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _chosen(names: Sequence[str], all_names: Sequence[str], what: str) -> list[str]:
    unknown = [name for name in names if name not in all_names]
    if unknown:
        message = f"there is no {what} {unknown[0]!r}: {', '.join(all_names)}"
        raise InvalidInput(message)
    return [name for name in all_names if not names or name in names]
