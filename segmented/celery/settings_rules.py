"""Rules of a single setting: names of variables, addresses of stock and broker, and the broker in Celery's spelling.

The command `segmented` reads SEGMENTED_URL and SEGMENTED_DATABASE too, and no others. Two spellings of one server are
recognised as the same.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES
from redis.connection import parse_url

from segmented.errors import InvalidInput
from segmented.masking import is_readable, masked, unknown
from segmented.models import shortened
from segmented.orders.engine import parse
from segmented.stores.redis.addresses import ENCODE, Deployment, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic import ValidationError

SOCKET_SCHEMES: Final = frozenset({"unix", "redis+socket"})
TCP_SCHEMES: Final = frozenset({"redis", "rediss"})

TLS_OPTIONS: Final = frozenset(
    {
        *("ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data"),
        *("ssl_check_hostname", "ssl_ciphers"),
    }
)
"""Options of a stock's URL that its broker needs too, and that Celery reads in the same way."""
BROKER_OPTIONS: Final = frozenset({"password", "virtual_host", "heartbeat", "connect_timeout", "login_method"})
"""Schemes to suggest for a mistyped one; Celery decides which others it accepts."""
SOCKET_OPTIONS: Final = frozenset({"virtual_host", "credential_provider"})
"""Schemes that Celery accepts for a socket, and checks only when it connects."""
REDIS_PORT: Final = 6_379
LOCAL: Final = "localhost"
UNKNOWN: Final = -1
PREFIX: Final = "SEGMENTED_"
SECRET: Final = frozenset({"url", "database", "broker"})
PATTERNS: Final = {"metrics_address": "should be HOST:PORT", "queue": "should have no spaces and no control characters"}
SERVICE_LINK: Final = re.compile(
    r"SEGMENTED_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
"""Variables that Kubernetes adds to every container for a service whose name begins with `segmented`."""


def broker_beside(url: str) -> str:
    """Return the next numbered database of the stock's own server, so that the two never share a key."""
    parts = urlsplit(url)
    if parts.scheme not in SOCKET_SCHEMES | TCP_SCHEMES:
        raise InvalidInput(f"no broker can be derived from a stock server at {parts.scheme}://; name one")
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


def check_url(url: str) -> None:
    """Refuse a URL that is not a stock server's."""
    if parse_address(url).deployment is Deployment.SINGLE:
        try:
            parse_url(url)
        except ValueError:  # it may quote part of the password
            raise InvalidInput(f"{masked(url)!r} is not a Redis URL, as redis://:PASSWORD@HOST:6379/0 is") from None


def check_broker(url: str) -> None:
    """Refuse a URL that Celery would not accept as a broker."""
    broker = kombu_url(url)
    scheme, _, rest = broker.partition("://")
    if "://" not in broker or scheme.partition("+")[0] not in {*TRANSPORT_ALIASES, *SOCKET_SCHEMES, *TCP_SCHEMES}:
        raise InvalidInput(f"{masked(url)} is not a broker that Celery knows")
    if not all(map(is_readable, url.split(";"))):
        raise InvalidInput(f"{masked(url)} cannot be read as an address: {ENCODE}")
    named = {name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
    wrong = named - SOCKET_OPTIONS if scheme in SOCKET_SCHEMES else set()
    try:
        Connection(broker)
    except TypeError as error:
        wrong = {name for name in named if repr(name) in str(error)} or {"that is meant"}
    except ValueError:  # it may quote part of the password
        raise InvalidInput(f"{masked(url)} cannot be read as an address: {ENCODE}") from None
    except ImportError as error:
        raise InvalidInput(f"{masked(url)} needs the package {error.name}, which is not installed") from None
    if wrong:
        message = f"{masked(url)} is not a broker that Celery can use: {unknown('option', min(wrong), BROKER_OPTIONS)}"
        raise InvalidInput(message)


CHECKS: Final[Mapping[str, Callable[[str], object]]] = {"url": check_url, "database": parse, "broker": check_broker}
"""Check each address alone."""


class Endpoint(NamedTuple):
    """A socket's path, or a host and its port."""

    place: str
    port: int


class Named(NamedTuple):
    """A server and one of its databases."""

    endpoint: Endpoint
    database: int


def stock_servers(url: str) -> list[Named]:
    """Return the server of a stock, or all that its URL names, including Sentinels. Raises InvalidInput."""
    address = parse_address(url)
    if address.deployment is Deployment.SINGLE:
        return list(_named(url))
    # The server and database to which a Sentinel sends a client are not known here.
    database = 0 if address.deployment is Deployment.CLUSTER else UNKNOWN
    return [Named(Endpoint(_host(host.name), host.port), database) for host in address.hosts]


def broker_servers(url: str) -> list[Named]:
    """Return the servers of a broker; Celery accepts several, separated by `;`."""
    return [named for one in url.split(";") for named in _named(one)]


def _named(url: str) -> Iterator[Named]:
    """Yield the server if the URL can be read and the server may hold a stock."""
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


def refuse_unknown(environment: Iterable[str], known: Sequence[str]) -> None:
    """Raise InvalidInput for the first unknown variable with this prefix, which would otherwise be ignored silently."""
    for name in sorted(environment):
        is_ours = name.upper().startswith(PREFIX)
        if is_ours and name.upper() not in known and not SERVICE_LINK.fullmatch(name.upper()):
            (nearest,) = get_close_matches(name.upper(), known, n=1, cutoff=0.0)
            raise InvalidInput(f"{shortened(name)[1:-1]} is not a worker setting: did you mean {nearest}?")


def sentence_of(error: ValidationError, settings: Iterable[str]) -> str:
    """Return what is wrong with the first impossible variable; the values of URLs are not shown."""
    wrong = error.errors(include_url=False, include_context=False)[0]
    field = str(wrong["loc"][0]) if wrong["loc"] else ""
    if wrong["type"] == "extra_forbidden":  # only a program can pass it, and its value may be a password
        return unknown("setting", field, settings)
    name = f"{PREFIX}{field.upper()}"
    said = wrong["msg"].removeprefix("Input ").partition(", unable to")[0]
    said = PATTERNS.get(field, said) if wrong["type"] == "string_pattern_mismatch" else said
    said = said.removeprefix("String ")
    value = "" if field in SECRET else f" is {shortened(wrong['input'])}:"
    return f"{name}{value} it {said[0].lower()}{said[1:]}"
