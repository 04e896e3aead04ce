"""The broker's address: the default for a stock server, and Celery's spelling of it."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from segmented.errors import InvalidInput

SOCKET_SCHEMES: Final = frozenset({"unix", "redis+socket"})
TCP_SCHEMES: Final = frozenset({"redis", "rediss"})

TLS_OPTIONS: Final = frozenset(
    {
        *("ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data"),
        *("ssl_check_hostname", "ssl_ciphers"),
    }
)
"""Options of a stock's URL that its broker needs too, and that Celery reads in the same way."""


def broker_beside(url: str) -> str:
    """Return the next numbered database of the stock's own server, so that the two never share a key."""
    parts = urlsplit(url)
    if parts.scheme not in SOCKET_SCHEMES | TCP_SCHEMES:
        message = f"no broker can be derived from a stock server at {parts.scheme}://; name one"
        raise InvalidInput(message)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name in TLS_OPTIONS]
    return _with_database(parts, options, _database(parts) + 1)


def kombu_url(url: str) -> str:
    """Return the URL as Celery expects it: a socket is `redis+socket://`, and its database is called virtual_host."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    own = {"db", "virtual_host", "username", "password"}
    options = [(name, value) for name, value in parse_qsl(parts.query) if name not in own]
    return _with_database(parts, options, _database(parts))


def database_of(url: str) -> int:
    """Return the number of the database, 0 if none is named."""
    return _database(urlsplit(url))


def _database(parts: SplitResult) -> int:
    """Read the number as redis-py does: from the query or, over TCP, from the path."""
    query = dict(parse_qsl(parts.query))
    found = query.get("db") or query.get("virtual_host") or ""
    if not found and parts.scheme in TCP_SCHEMES:
        found = parts.path.strip("/")
    return int(found) if found.isdecimal() else 0


def _with_database(parts: SplitResult, options: list[tuple[str, str]], number: int) -> str:
    where = _with_account(parts)
    if parts.scheme in SOCKET_SCHEMES:
        options = [*options, ("virtual_host", str(number))]
        return f"redis+socket://{where}{parts.path}?{urlencode(options)}"  # urlunsplit drops an empty host here
    return urlunsplit((parts.scheme, where, f"/{number}", urlencode(options), ""))


def _with_account(parts: SplitResult) -> str:
    """Return host and port, preceded by the account, which redis-py may also read from the options."""
    query = dict(parse_qsl(parts.query))
    user = parts.username or quote(query.get("username", ""), safe="")
    password = parts.password or quote(query.get("password", ""), safe="")
    return f"{f'{user}:{password}@' if user or password else ''}{parts.netloc.rpartition('@')[2]}"
