"""Which servers a URL names: one, a master by way of Sentinels, or a cluster. Pure: nothing is connected here.

| URL | names |
| --- | --- |
| `redis://[USER:PASSWORD@]HOST:PORT/DB`, `unix://PATH?db=DB` | one server, in redis-py's own words |
| `redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/SERVICE[/DB]` | the master that these Sentinels name |
| `redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT` | the cluster that these nodes belong to |

`rediss` in place of `redis` asks for TLS on every connection. Options follow after `?`, as redis-py reads them. User
and password are those of the data servers; Sentinels that ask for some too get them as the options `sentinel_username`
and `sentinel_password`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from segmented.errors import InvalidInput

SENTINEL_PORT: Final = 26_379
CLUSTER_PORT: Final = 6_379
PORT_MAX: Final = 65_535
SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""What Sentinel's own documentation allows."""
HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+(?:%[^\[\]]+)?\]|[^\[\]:,\s]+)(?::(?P<port>[0-9]{1,5}))?")
AUTHORITY: Final = re.compile(r"[^/?#]*")
PASSWORD_OPTION: Final = re.compile(r"(?<=[?&]password=)[^&]*|(?<=[?&]sentinel_password=)[^&]*")
ENCODE: Final = "in a password, / ? # and @ must be percent-encoded"


class Deployment(Enum):
    """What stands behind an address."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Host(NamedTuple):
    """Where one server listens."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Address:
    """A URL that was understood; its passwords are not in its `repr`."""

    deployment: Deployment
    shown: str
    """The URL as it was given, without passwords."""
    node_url: str = field(repr=False)
    """The URL of one server (the first host of several), with account and options, as redis-py reads it."""
    hosts: tuple[Host, ...] = ()
    """Sentinels, or nodes of the cluster; empty for one server."""
    service: str = ""
    """The name under which the Sentinels watch the master."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)


def parse_address(url: str) -> Address:
    """Understand a URL; raises InvalidInput with one sentence without passwords."""
    scheme, separator, rest = url.partition("://")
    security, plus, kind = scheme.partition("+")
    if not (separator and plus):
        return Address(Deployment.SINGLE, shown(url), url)
    if security not in {"redis", "rediss"} or kind not in {"sentinel", "cluster"}:
        raise _refusal(url, "after redis or rediss, +sentinel and +cluster are known")
    authority = AUTHORITY.match(rest)[0]  # type: ignore[index]  # it also matches nothing
    account, at, listed = authority.rpartition("@")
    path, _, query = rest[len(authority) :].partition("?")
    hosts = tuple(_host(url, one, SENTINEL_PORT if kind == "sentinel" else CLUSTER_PORT) for one in listed.split(","))
    options = dict(parse_qsl(query.partition("#")[0], keep_blank_values=True))
    username, password = options.pop("sentinel_username", None), options.pop("sentinel_password", None)
    service, database = _service(url, path) if kind == "sentinel" else ("", "0")
    if kind == "cluster" and (path not in {"", "/", "/0"} or options.get("db", "0") != "0"):
        raise _refusal(url, f"a cluster has database 0 alone ({ENCODE})")
    if kind == "cluster" and (username or password):
        raise _refusal(url, "sentinel_username and sentinel_password are options of redis+sentinel:// alone")
    first = f"[{hosts[0].name}]" if ":" in hosts[0].name else hosts[0].name
    node_url = (
        f"{security}://{account}{at}{first}:{hosts[0].port}/{database}{'?' if options else ''}{urlencode(options)}"
    )
    return Address(
        Deployment(kind),
        shown(url),
        node_url,
        hosts,
        service,
        sentinel_username=username,
        sentinel_password=password,
    )


def shown(url: str) -> str:
    """Return the URL without its passwords, also if it is no valid URL or they stand in its query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    account, at, host = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    named = f"{user}:***{at}{host}" if colon else rest
    return f"{scheme}{separator}{PASSWORD_OPTION.sub('***', named)}"


def _host(url: str, text: str, default_port: int) -> Host:
    found = HOST.fullmatch(text)
    port = int(found["port"] or default_port) if found else 0
    if found is None or not 1 <= port <= PORT_MAX:
        detail = f"each host is NAME or NAME:PORT, with a port from 1 to {PORT_MAX}, and a comma between two ({ENCODE})"
        raise _refusal(url, detail)
    return Host(unquote(found["name"]).strip("[]"), port)


def _service(url: str, path: str) -> tuple[str, str]:
    service, _, database = unquote(path).strip("/").partition("/")
    if not SERVICE_NAME.fullmatch(service) or not (database.isdecimal() or database == ""):
        detail = f"after the Sentinels come /SERVICE, in letters, digits and ._-, and perhaps /DATABASE ({ENCODE})"
        raise _refusal(url, detail)
    return service, database or "0"


def _refusal(url: str, detail: str) -> InvalidInput:
    return InvalidInput(f"{shown(url)!r} is not a Redis URL: {detail}")
