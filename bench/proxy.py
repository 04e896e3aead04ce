"""Simulates a network with a given round trip in front of a local server: each byte is delayed by half of it.

Starts the proxy's process and ends it. The upstream of a proxy, and the URL of the same database through it.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from bench.children import close_process, start_child, tell_child
from bench.engine.cell import ROUND_TRIP_MAX
from bench.proxy_relay import DEFAULT_PORT, Upstream
from segmented.errors import InvalidInput, SegmentedError
from segmented.servers.folders import SOCKET_NAME_LONGEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def delayed(url: str, rtt_ms: float, *, cores: Sequence[int] = ()) -> Iterator[str]:
    """Yield a URL of the same Redis with `rtt_ms` more milliseconds per round trip.

    A separate process relays the bytes: its CPU time is in the `others` of a run's cores. Raises InvalidInput for an
    unsupported URL or round trip. `cores`: where it may run; empty: any.
    """
    upstream = upstream_of(url)
    if not 0 <= rtt_ms <= ROUND_TRIP_MAX:  # also refuses NaN
        raise InvalidInput(f"a round trip of {rtt_ms:g} ms must be between 0 and {ROUND_TRIP_MAX:,g} ms")
    with tempfile.TemporaryDirectory(prefix="segmented-") as folder, tempfile.TemporaryFile("w+") as errors:
        path = f"{folder}/{SOCKET_NAME_LONGEST}"  # the name that a client of PostgreSQL looks for
        child = start_child(("-m", "bench.proxy_relay"), errors=errors)
        try:
            told = {"upstream": asdict(upstream), "rtt_ms": rtt_ms, "path": path, "cores": list(cores)}
            tell_child(child, json.dumps(told))
            if child.stdout is None or not child.stdout.readline():
                errors.seek(0)
                last_words = [line.strip() for line in errors if line.strip()][-1:]
                raise SegmentedError(f"the network delay could not be started: {' '.join(last_words)}")
            yield through(url, path)
        finally:
            close_process(child)


def upstream_of(url: str) -> Upstream:
    """Return the server of a Redis URL. Raises InvalidInput for a URL that a proxy does not support."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Upstream(path=unquote(parts.path))
    if parts.scheme == "redis":
        return Upstream(host=parts.hostname or "localhost", port=parts.port or DEFAULT_PORT)
    raise InvalidInput(f"a network delay goes before redis:// and unix://, and not before {parts.scheme}://")


def through(url: str, path: str) -> str:
    """Return the URL of the same database, user and options through a proxy at the socket `path`."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    number = parts.path.strip("/") if parts.scheme != "unix" else ""
    if number and "db" not in query:
        query["db"] = number
    return f"unix://{account}{at}{quote(path)}{'?' if query else ''}{urlencode(query)}"
