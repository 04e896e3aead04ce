"""Rules across settings that are valid alone: names of variables, servers that must differ, times that must fit.

The command `segmented` reads SEGMENTED_URL and SEGMENTED_DATABASE too, and no others. Two spellings of one server are
recognised as the same.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES
from redis.connection import parse_url

from segmented.celery.broker import SOCKET_SCHEMES, TCP_SCHEMES, broker_beside, database_of, kombu_url
from segmented.errors import InvalidInput
from segmented.masking import masked, unknown
from segmented.models import check_id, shortened
from segmented.models.ids import SKU_BYTES_MAX
from segmented.orders.engine import parse
from segmented.stores.redis.addresses import Deployment, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic import SecretStr, ValidationError

    from segmented.celery.settings import WorkerSettings

STEP: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
BROKER_OPTIONS: Final = frozenset({"password", "virtual_host", "heartbeat", "connect_timeout", "login_method"})
"""Schemes to suggest for a mistyped one; Celery decides which others it accepts."""
SOCKET_OPTIONS: Final = frozenset({"virtual_host", "credential_provider"})
"""Schemes that Celery accepts for a socket, and checks only when it connects."""
LIMITS_IN_VISIBILITY: Final = 2
"""A task that is ended by force has its message requeued before the broker redelivers it."""
REDIS_PORT: Final = 6_379
LOCAL: Final = "localhost"
UNKNOWN: Final = -1
PREFIX: Final = "SEGMENTED_"
SECRET: Final = frozenset({"url", "database", "broker"})
SERVICE_LINK: Final = re.compile(
    r"SEGMENTED_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
"""Variables that Kubernetes adds to every container for a service whose name begins with `segmented`."""


def check_settings(settings: WorkerSettings) -> None:
    """Raise InvalidInput with one sentence that contains no password."""
    _check_addresses(settings)
    if settings.broker is not None:
        check_apart(settings, settings.broker_url, "SEGMENTED_BROKER")
    _check_times(settings)
    for sku in settings.skus:
        check_id(sku, "SEGMENTED_SKUS: sku", bytes_max=SKU_BYTES_MAX)
    if settings.step is not None and not STEP.fullmatch(settings.step):
        message = f"SEGMENTED_STEP is {shortened(settings.step)}: it should be module:function"
        raise InvalidInput(message)


def broker_is_said(settings: WorkerSettings) -> bool:
    """Return whether one of the two addresses was chosen. With neither, all is in two local databases."""
    return bool({"url", "broker"} & settings.model_fields_set)


def is_on_stock_server(settings: WorkerSettings) -> bool:
    """Return whether stock and broker share a server, as far as their addresses show."""
    stock = {named.endpoint for named in stock_servers(settings.url.get_secret_value())}
    return any(named.endpoint in stock for named in broker_servers(settings.broker_url))


def derived_broker(settings: WorkerSettings) -> str:
    """Return the default broker of the ready-made app. Raises InvalidInput if it must be set."""
    url = settings.url.get_secret_value()
    if parse_address(url).deployment is not Deployment.SINGLE:
        message = "SEGMENTED_BROKER is not set, and no broker can be derived from Sentinels or a cluster: name a server"
        raise InvalidInput(message)
    if broker_is_said(settings) and not settings.broker_on_stock_server:
        raise InvalidInput(_endangering("SEGMENTED_BROKER is not set, and would be"))
    return broker_beside(url)


def check_apart(settings: WorkerSettings, broker: str, named: str) -> None:
    """Raise InvalidInput if a broker, called `named` in the sentence, is not separate from the stock."""
    stock, servers = stock_servers(settings.url.get_secret_value()), broker_servers(broker)
    if not set(stock).isdisjoint(servers):
        message = f"{named} names the database of SEGMENTED_URL: stock and messages must not share one"
        raise InvalidInput(message)
    if settings.broker_on_stock_server or not broker_is_said(settings):
        return
    if not {one.endpoint for one in stock}.isdisjoint(one.endpoint for one in servers):
        raise InvalidInput(_endangering(f"{named} is"))


def _endangering(what: str) -> str:
    return (
        f"{what} on the server of SEGMENTED_URL, where a full queue stops the sale: "
        "name another server, or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
    )


def check_url(url: str) -> None:
    """Refuse a URL that is not a stock server's."""
    if parse_address(url).deployment is Deployment.SINGLE:
        try:
            parse_url(url)
        except ValueError:  # it may quote part of the password
            message = f"{masked(url)!r} is not a Redis URL, as redis://:PASSWORD@HOST:6379/0 is"
            raise InvalidInput(message) from None


def check_broker(url: str) -> None:
    """Refuse a URL that Celery would not accept as a broker."""
    broker = kombu_url(url)
    scheme, _, rest = broker.partition("://")
    if "://" not in broker or scheme.partition("+")[0] not in {*TRANSPORT_ALIASES, *SOCKET_SCHEMES, *TCP_SCHEMES}:
        message = f"{masked(url)} is not a broker that Celery knows"
        raise InvalidInput(message)
    named = {name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
    wrong = named - SOCKET_OPTIONS if scheme in SOCKET_SCHEMES else set()
    try:
        Connection(broker)
    except TypeError as error:
        wrong = {name for name in named if repr(name) in str(error)} or {"that is meant"}
    except ValueError:  # it may quote part of the password
        message = f"{masked(url)} cannot be read as an address: in a password, / ? # and @ must be percent-encoded"
        raise InvalidInput(message) from None
    except ImportError as error:
        message = f"{masked(url)} needs the package {error.name}, which is not installed"
        raise InvalidInput(message) from None
    if wrong:
        message = f"{masked(url)} is not a broker that Celery can use: {unknown('option', min(wrong), BROKER_OPTIONS)}"
        raise InvalidInput(message)


CHECKS: Final[Mapping[str, Callable[[str], object]]] = {"url": check_url, "database": parse, "broker": check_broker}
"""Check each address alone."""


def _check_addresses(settings: WorkerSettings) -> None:
    for field, check in CHECKS.items():
        said: SecretStr | None = getattr(settings, field)
        try:
            if said is not None:
                check(said.get_secret_value())
        except InvalidInput as error:
            message = f"SEGMENTED_{field.upper()} cannot be used: {error}"
            raise InvalidInput(message) from None


def _check_times(settings: WorkerSettings) -> None:
    limit = settings.task_time_limit
    if settings.visibility_timeout < LIMITS_IN_VISIBILITY * limit:
        message = (
            f"SEGMENTED_VISIBILITY_TIMEOUT is {settings.visibility_timeout:g} s: it should be at least twice "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
        raise InvalidInput(message)
    if settings.segment_wait >= limit:
        message = (
            f"SEGMENTED_SEGMENT_WAIT is {settings.segment_wait:g} s: it should be less than "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
        raise InvalidInput(message)
    for name, seconds in (("SEGMENT_TTL", settings.segment_ttl), ("PUBLISH_AFTER", settings.publish_after)):
        if settings.hold < seconds:
            message = (
                f"SEGMENTED_HOLD is {settings.hold:g} s: it should be at least SEGMENTED_{name}, which is {seconds:g} s"
            )
            raise InvalidInput(message)


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
            message = f"{shortened(name)[1:-1]} is not a worker setting: did you mean {nearest}?"
            raise InvalidInput(message)


def sentence_of(error: ValidationError, settings: Iterable[str]) -> str:
    """Return what is wrong with the first impossible variable; the values of URLs are not shown."""
    wrong = error.errors(include_url=False, include_context=False)[0]
    field = str(wrong["loc"][0]) if wrong["loc"] else ""
    if wrong["type"] == "extra_forbidden":  # only a program can pass it, and its value may be a password
        return unknown("setting", field, settings)
    name = f"{PREFIX}{field.upper()}"
    said = wrong["msg"].removeprefix("Input ").partition(", unable to")[0]
    value = "" if field in SECRET else f" is {shortened(wrong['input'])}:"
    return f"{name}{value} it {said[0].lower()}{said[1:]}"
