"""The upstream of a proxy, and the URL of the same database through it."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from bench.proxy.upstream import DEFAULT_PORT, Upstream
from segmented.errors import InvalidInput


def upstream_of(url: str) -> Upstream:
    """Return the server of a Redis URL. Raises InvalidInput for a URL that a proxy does not support."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Upstream(path=unquote(parts.path))
    if parts.scheme == "redis":
        return Upstream(host=parts.hostname or "localhost", port=parts.port or DEFAULT_PORT)
    message = f"a network delay goes before redis:// and unix://, and not before {parts.scheme}://"
    raise InvalidInput(message)


def through(url: str, port: int) -> str:
    """Return the URL of the same database, user and options through a proxy on a local `port`."""
    parts = urlsplit(url)
    account = parts.netloc.rpartition("@")[0]
    netloc = f"{account}@127.0.0.1:{port}" if account else f"127.0.0.1:{port}"
    if parts.scheme != "unix":
        return parts._replace(netloc=netloc).geturl()
    query = dict(parse_qsl(parts.query))
    path = f"/{query.pop('db')}" if "db" in query else ""
    return SplitResult("redis", netloc, path, urlencode(query), "").geturl()
