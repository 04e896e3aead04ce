"""Which servers a URL names, so that two spellings of one server are seen to be one."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from segmented.celery.broker import SOCKET_SCHEMES, TCP_SCHEMES, database_of
from segmented.stores.redis.addresses import Deployment, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

REDIS_PORT: Final = 6_379
LOCAL: Final = "localhost"
UNKNOWN: Final = -1


class Endpoint(NamedTuple):
    """A socket's path, or a host and its port."""

    place: str
    port: int


class Named(NamedTuple):
    """A server, and which of its databases."""

    endpoint: Endpoint
    database: int


def stock_servers(url: str) -> list[Named]:
    """Return the server of a stock; of several all that its URL names, Sentinels included. Raises InvalidInput."""
    address = parse_address(url)
    if address.deployment is Deployment.SINGLE:
        return list(_named(url))
    # Where a Sentinel sends a client is not known here, so not in which database it ends up either.
    database = 0 if address.deployment is Deployment.CLUSTER else UNKNOWN
    return [Named(Endpoint(_host(host.name), host.port), database) for host in address.hosts]


def broker_servers(url: str) -> list[Named]:
    """Return the servers of a broker, of which Celery takes several with `;` between two."""
    return [named for one in url.split(";") for named in _named(one)]


def _named(url: str) -> Iterator[Named]:
    """Give the server if the URL can be read and it may be one that holds a stock."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return
    if parts.scheme in SOCKET_SCHEMES:
        yield Named(Endpoint(os.path.realpath(unquote(parts.path)), 0), database_of(url))
    elif parts.scheme in TCP_SCHEMES or port is not None:
        yield Named(Endpoint(_host(parts.hostname or LOCAL), port or REDIS_PORT), database_of(url))


def _host(name: str) -> str:
    name = unquote(name).lower().rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return LOCAL if name in {LOCAL, f"{LOCAL}.localdomain", "ip6-localhost"} else name
    address = getattr(address, "ipv4_mapped", None) or address
    return LOCAL if address.is_loopback or address.is_unspecified else address.compressed
