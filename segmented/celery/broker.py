"""The broker's address: which one goes with a stock server, and how Celery spells it."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from segmented.errors import InvalidInput

SOCKET_SCHEMES: Final = frozenset({"unix", "redis+socket"})
TCP_SCHEMES: Final = frozenset({"redis", "rediss"})


def broker_beside(url: str) -> str:
    """Return the next numbered database of the stock's own server, so that the two never share a key."""
    parts = urlsplit(url)
    if parts.scheme not in SOCKET_SCHEMES | TCP_SCHEMES:
        message = f"no broker can be derived from a stock server at {parts.scheme}://; name one"
        raise InvalidInput(message)
    return _with_database(parts, _database(parts) + 1)


def kombu_url(url: str) -> str:
    """Return the URL as Celery wants it: a socket is `redis+socket://`, and its database is called virtual_host."""
    parts = urlsplit(url)
    return _with_database(parts, _database(parts)) if parts.scheme == "unix" else url


def database_of(url: str) -> int:
    """Return the number of the database, 0 if none is named."""
    return _database(urlsplit(url))


def _database(parts: SplitResult) -> int:
    """Read the number as redis-py does: from the query, else, over TCP, from the path."""
    query = dict(parse_qsl(parts.query))
    found = query.get("db") or query.get("virtual_host") or ""
    if not found and parts.scheme in TCP_SCHEMES:
        found = parts.path.strip("/")
    return int(found) if found.isdecimal() else 0


def _with_database(parts: SplitResult, number: int) -> str:
    query = [(key, value) for key, value in parse_qsl(parts.query) if key not in {"db", "virtual_host"}]
    if parts.scheme in SOCKET_SCHEMES:
        query.append(("virtual_host", str(number)))
        return f"redis+socket://{parts.netloc}{parts.path}?{urlencode(query)}"  # urlunsplit drops an empty host here
    return urlunsplit((parts.scheme, parts.netloc, f"/{number}", urlencode(query), ""))
