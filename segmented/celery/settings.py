"""The settings of a worker: environment variables with the prefix SEGMENTED_, checked once, at the start.

Settings that are valid alone must also fit together: servers that must differ, times, and names. Two spellings of one
server are recognised as the same. The command `segmented` reads SEGMENTED_URL and SEGMENTED_DATABASE too, no others.

The settings of a process are those given to `add_tasks`, or else those of the environment. A worker whose settings are
wrong exits with one sentence on standard error, and an exit code.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import version
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from celery.app.defaults import SETTING_KEYS
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from redis.connection import parse_url

from segmented.errors import InvalidInput, SegmentedError
from segmented.files import SUFFIX, said_in_file
from segmented.masking import is_readable, masked, unknown
from segmented.models import SKU_BYTES_MAX, checked_id, plain_text, shortened
from segmented.models.pools import is_step
from segmented.orders.engine import parse
from segmented.process import tell
from segmented.servers.announcement import announced
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL
from segmented.stores.redis.addresses import ENCODE, Deployment, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo


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
QUEUE: Final = "segmented"
LOCAL_URL: Final = "redis://localhost:6379/0"
LOCAL_DATABASE: Final = "postgresql://postgres@localhost/segmented"
SECONDS_MAX: Final = 86_400.0 * 30
ENVELOPE_MOST: Final = 100
ATTEMPTS_MOST: Final = 1_000
CONCURRENCY_MOST: Final = 1_000
AMQP_SCHEMES: Final = frozenset({"amqp", "amqps", "pyamqp"})
QUORUM_SETTING: Final = "worker_detect_quorum_queues"
"""A Celery that lacks it asks for a prefetch of the whole channel, which RabbitMQ refuses for these queues."""
LIMITS_IN_VISIBILITY: Final = 2
"""A task that is ended by force has its message requeued before the broker redelivers it."""

Seconds = Annotated[float, Field(gt=0, le=SECONDS_MAX, allow_inf_nan=False)]
Every = Annotated[float, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]
EXIT_WRONG: Final = 2
"""The configuration is wrong: a restart cannot help."""
EXIT_UNREACHABLE: Final = 1
"""A server did not answer: a later start may succeed."""


def _local_url() -> str:
    found = announced()
    return LOCAL_URL if found is None else found.url


def _local_database(validated: dict[str, Any]) -> SecretStr:
    """Return the database that `segmented server` runs beside this stock, if there is one."""
    found = announced()
    url: SecretStr | None = validated.get("url")
    is_beside = found is not None and url is not None and found.url == url.get_secret_value()
    return SecretStr(found.database if found is not None and is_beside else LOCAL_DATABASE)


class _Files(PydanticBaseSettingsSource):
    """The settings with passwords, from the files that SEGMENTED_URL_FILE and the like name."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002  # the base class's signature
        """Return the content of one setting's file, its name, and that it is plain text. Raises InvalidInput."""
        found = said_in_file(f"{PREFIX}{field_name.upper()}", check=CHECKS[field_name])
        return found, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the settings from files that were not given to the class. Raises InvalidInput."""
        asked = (name for name in sorted(SECRET) if name not in self.current_state)
        found = (self.get_field_value(self.settings_cls.model_fields[name], name) for name in asked)
        return {name: value for value, name, _ in found if value is not None}


class WorkerSettings(BaseSettings):
    """Addresses of stock, orders and messages, and how workers treat them.

    Raises InvalidInput, with one sentence, for an unknown variable, an impossible value, and values that contradict
    each other. The URLs may hold passwords, so they are never shown.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    url: SecretStr = Field(default_factory=lambda: SecretStr(_local_url()))
    """Server that holds the stock, with `maxmemory-policy noeviction`: `redis://`, `rediss://`, `unix://`,
    `redis+sentinel://` or `redis+cluster://`."""
    database: SecretStr = Field(default_factory=_local_database)
    """Order database: `postgresql://`, `mysql://` or `sqlite:///path`."""
    broker: SecretStr | None = None
    """Celery's broker, on another server than the stock; a socket as `unix:///path?db=1`."""
    broker_on_stock_server: bool = False
    """Allow a broker on the stock's own server, in another database: for a laptop, not for production."""
    queue: str = Field(default=QUEUE, min_length=1, max_length=200, pattern=r"^[^\s\x00-\x1f\x7f]+$")
    """Queue to serve; the periodic tasks use a second queue whose name ends with `-chores`. A pool that names another
    queue leaves its orders to that one."""
    queue_type: Literal["classic", "quorum"] = "classic"
    """Type of both queues on RabbitMQ; `quorum` keeps copies on several nodes, and needs Celery 5.5 or newer."""
    pool: Literal["threads", "prefork", "solo", "gevent"] = "threads"
    """Celery pool that runs tasks concurrently; for gevent also pass `-P gevent`."""
    concurrency: int = Field(default=4, ge=1, le=CONCURRENCY_MOST)
    """Orders that one worker processes concurrently, each with its own database connection."""
    segment_ttl: Seconds = DEFAULT_TTL
    """Lease of a segment under `segmented.take_order`, seconds; after a kill the current order waits that long."""
    hold: Seconds = DEFAULT_HOLD
    """Seconds for which an unfinished order keeps its units if it is in no outbox: an order of `segmented.take_order`,
    or one in the dead-letter set; at least `SEGMENTED_SEGMENT_TTL` and `SEGMENTED_PUBLISH_AFTER`."""
    segment_timeout: Seconds = 15.0
    """Seconds that an order waits for a free segment before its task is deferred; less than
    `SEGMENTED_TASK_TIME_LIMIT`."""
    task_time_limit: Seconds = 20.0
    """Time limit of a task, seconds; enforced by prefork and gevent, not by threads and solo."""
    visibility_timeout: Seconds = 60.0
    """Seconds after which an unacknowledged message is delivered again; at least twice `SEGMENTED_TASK_TIME_LIMIT`, and
    the same for every worker and publisher of the queue."""
    envelope_max: int = Field(default=100, ge=1, le=ENVELOPE_MOST)
    """Maximum orders per message."""
    publish_after: Seconds = 5.0
    """Seconds after which an accepted, unfinished order is published again; after a kill the worker's orders and its
    segment wait that long."""
    attempts_max: int = Field(default=5, ge=1, le=ATTEMPTS_MOST)
    """Attempts to finish an order before it goes to the dead-letter set."""
    sweep_every: Every = 1.0
    """Interval of republishing orders, seconds; 0: never."""
    expire_every: Every = 1.0
    """Interval of releasing expired holds, seconds; 0: never."""
    transfers_every: Every = 10.0
    """Interval of completing transfers between shards, seconds; 0: never."""
    relay_every: Every = 10.0
    """Interval of copying the ledgers of relayed pools to the order database, seconds; 0, or without
    `SEGMENTED_DATABASE`: never."""
    ledger_keep: int | None = Field(default=None, ge=0)
    """Entries that a relayed ledger keeps; older ones are deleted once the order database has them; unset: all."""
    forget_after: Every | None = None
    """Seconds after their end in which a gated, relayed pool answers repeats of finished orders; later their records
    go, and the order database answers. Longer than any client or queue repeats a message; unset: records stay."""
    forget_every: Every = 600.0
    """Interval of forgetting, seconds; 0, or without `SEGMENTED_DATABASE`: never."""
    rebuild_frozen: bool = False
    """Rebuild a gated pool that lost changes at the next sweep, from the order database and without an operator;
    otherwise it stays frozen until `segmented pool rebuild`."""
    audit_every: Every = 600.0
    """Interval of auditing a changing pool, seconds, up to 600; others wait 60 s for each pool; 0: never."""
    skus: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated skus for the periodic tasks, in addition to gated ones and those that had submitted orders."""
    step: str | None = None
    """Your own step for each order, as `module:function`. A pool that names another step leaves its orders to workers
    that have it."""
    store_with: str | None = None
    """Your own function, as `module:function`, that stores rows in the transaction that stores a message's orders."""
    on_outcome: str | None = None
    """Your own function for each order that has ended, as `module:function`; it needs `SEGMENTED_DATABASE`, to which it
    relays the ledger of every pool, each `SEGMENTED_RELAY_EVERY`."""
    events: Annotated[tuple[Literal["prometheus", "opentelemetry", "watch"], ...], NoDecode] = ()
    """Comma-separated: `prometheus`, `opentelemetry`. Counts what happens in the worker: see
    [metrics](../how-to/watch-a-sale.md#metrics-of-your-own-processes); needs the extra `metrics`. `watch`, without an
    extra: each process reports its refusals and its tasks to [`segmented watch`](../how-to/watch-a-sale.md)."""
    metrics_address: str | None = Field(default=None, pattern=r"^[^\s]+:\d{1,5}$")
    """`HOST:PORT` on which the worker shows its metrics to Prometheus, all processes of a prefork pool together."""
    log_format: Literal["text", "json"] = "text"
    """`json`: log one JSON object a line. Commands read this variable, too."""
    health_path: str | None = Field(default=None, min_length=1)
    """File that the worker touches every second, unless a message has been in its hands for longer than
    `SEGMENTED_VISIBILITY_TIMEOUT`: for a liveness probe."""
    ends_with_stdin: bool = False
    """End when standard input closes: for a worker whose starter holds the other end of that pipe."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # none is read
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # a folder of files: none is read
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings: arguments of the class, then files for secrets, then the environment."""
        return init_settings, _Files(settings_cls), env_settings

    @field_validator("skus", "events", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(filter(None, map(str.strip, plain_text(value).split(",")))) if isinstance(value, str) else value

    if not TYPE_CHECKING:  # otherwise a type checker would accept any argument

        def __init__(self, **values: object) -> None:
            """Read what is not given from the environment. Raises InvalidInput with one sentence."""
            names = [f"{PREFIX}{name.upper()}" for name in type(self).model_fields]
            refuse_unknown(os.environ, [*names, *(f"{PREFIX}{name.upper()}{SUFFIX}" for name in SECRET)])
            try:
                super().__init__(**values)
            except ValidationError as error:
                message = sentence_of(error, type(self).model_fields)
                raise InvalidInput(message) from None  # the error holds the values, which may be passwords
            check_settings(self)

    @property
    def broker_url(self) -> str:
        """The broker's address in Celery's spelling. Raises InvalidInput if it is required but not set."""
        return derived_broker(self) if self.broker is None else kombu_url(self.broker.get_secret_value())

    @property
    def chores_queue(self) -> str:
        """The queue of the periodic tasks, so that waiting orders do not delay them."""
        return f"{self.queue}-chores"

    def environment(self) -> dict[str, str]:
        """Return these settings as the environment of another process. It includes passwords, so do not show it.

        A variable that names a file here is empty there, since the value itself is given.
        """
        values = self.model_dump() | {
            "broker": self.broker_url,
            "skus": ",".join(self.skus),
            "events": ",".join(self.events),
        }
        # A default here is explicit there, and a derived value here is given there.
        values["broker_on_stock_server"] = self.broker_on_stock_server or (
            not broker_is_said(self) and is_on_stock_server(self)
        )
        plain = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in values.items()
            if value is not None
        }
        nowhere = {f"{PREFIX}{name.upper()}{SUFFIX}": "" for name in SECRET if name in plain}
        return nowhere | {f"{PREFIX}{name.upper()}": str(value) for name, value in plain.items()}


def check_settings(given: WorkerSettings) -> None:
    """Raise InvalidInput with one sentence that contains no password."""
    _check_addresses(given)
    if given.broker is not None:
        check_apart(given, given.broker_url, "SEGMENTED_BROKER")
    _check_times(given)
    _check_queue_type(given)
    if given.metrics_address is not None and "prometheus" not in given.events:
        raise InvalidInput("SEGMENTED_METRICS_ADDRESS is set: set SEGMENTED_EVENTS to prometheus, too")
    for sku in given.skus:
        checked_id(sku, "SEGMENTED_SKUS: sku", bytes_max=SKU_BYTES_MAX)
    for name in ("step", "store_with", "on_outcome"):
        named = getattr(given, name)
        if named is not None and not is_step(named):
            raise InvalidInput(f"SEGMENTED_{name.upper()} is {shortened(named)}: it should be module:function")
    if given.on_outcome is not None and not ("database" in given.model_fields_set and given.relay_every):
        raise InvalidInput(
            "SEGMENTED_ON_OUTCOME needs SEGMENTED_DATABASE, and SEGMENTED_RELAY_EVERY above 0: the worker reads the "
            "outcomes in the ledger that it relays there"
        )


def broker_is_said(given: WorkerSettings) -> bool:
    """Return whether one of the two addresses was chosen. With neither, all is in two local databases."""
    return bool({"url", "broker"} & given.model_fields_set)


def is_on_stock_server(given: WorkerSettings) -> bool:
    """Return whether stock and broker share a server, as far as their addresses show."""
    stock = {named.endpoint for named in stock_servers(given.url.get_secret_value())}
    return any(named.endpoint in stock for named in broker_servers(given.broker_url))


def derived_broker(given: WorkerSettings) -> str:
    """Return the default broker of the ready-made app. Raises InvalidInput if it must be set."""
    url = given.url.get_secret_value()
    if parse_address(url).deployment is not Deployment.SINGLE:
        message = "SEGMENTED_BROKER is not set, and no broker can be derived from Sentinels or a cluster: name a server"
        raise InvalidInput(message)
    if broker_is_said(given) and not given.broker_on_stock_server:
        raise InvalidInput(_endangering("SEGMENTED_BROKER is not set, and would be"))
    return broker_beside(url)


def check_apart(given: WorkerSettings, broker: str, named: str) -> None:
    """Raise InvalidInput if a broker, called `named` in the sentence, is not separate from the stock."""
    stock, servers = stock_servers(given.url.get_secret_value()), broker_servers(broker)
    if not set(stock).isdisjoint(servers):
        raise InvalidInput(f"{named} names the database of SEGMENTED_URL: stock and messages must not share one")
    if given.broker_on_stock_server or not broker_is_said(given):
        return
    if not {one.endpoint for one in stock}.isdisjoint(one.endpoint for one in servers):
        raise InvalidInput(_endangering(f"{named} is"))


def _endangering(what: str) -> str:
    return (
        f"{what} on the server of SEGMENTED_URL, where a full queue stops the sale: "
        "name another server, or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
    )


def _check_addresses(given: WorkerSettings) -> None:
    for field, check in CHECKS.items():
        said: SecretStr | None = getattr(given, field)
        try:
            if said is not None:
                check(said.get_secret_value())
        except InvalidInput as error:
            raise InvalidInput(f"SEGMENTED_{field.upper()} cannot be used: {error}") from None


def _check_queue_type(given: WorkerSettings) -> None:
    if given.queue_type == "classic":
        return
    said = f"SEGMENTED_QUEUE_TYPE is {given.queue_type}"
    if urlsplit(given.broker_url).scheme not in AMQP_SCHEMES:
        message = f"{said}: it should be classic, since only RabbitMQ has other queues, and its broker is amqp://"
        raise InvalidInput(message)
    if QUORUM_SETTING not in SETTING_KEYS:
        raise InvalidInput(f"{said}: it needs Celery 5.5 or newer, and {version('celery')} is installed")


def _check_times(given: WorkerSettings) -> None:
    limit = given.task_time_limit
    if given.visibility_timeout < LIMITS_IN_VISIBILITY * limit:
        raise InvalidInput(
            f"SEGMENTED_VISIBILITY_TIMEOUT is {given.visibility_timeout:g} s: it should be at least twice "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
    if given.segment_timeout >= limit:
        raise InvalidInput(
            f"SEGMENTED_SEGMENT_TIMEOUT is {given.segment_timeout:g} s: it should be less than "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
    for name, seconds in (("SEGMENT_TTL", given.segment_ttl), ("PUBLISH_AFTER", given.publish_after)):
        if given.hold < seconds:
            raise InvalidInput(
                f"SEGMENTED_HOLD is {given.hold:g} s: it should be at least SEGMENTED_{name}, which is {seconds:g} s"
            )


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
        yield Named(Endpoint(os.path.realpath(unquote(parts.path)), 0), _database(parts))
    elif parts.scheme in TCP_SCHEMES or port is not None:
        yield Named(Endpoint(_host(parts.hostname or LOCAL), port or REDIS_PORT), _database(parts))


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


def sentence_of(error: ValidationError, known: Iterable[str]) -> str:
    """Return what is wrong with the first impossible variable; the values of URLs are not shown."""
    wrong = error.errors(include_url=False, include_context=False)[0]
    field = str(wrong["loc"][0]) if wrong["loc"] else ""
    if wrong["type"] == "extra_forbidden":  # only a program can pass it, and its value may be a password
        return unknown("setting", field, known)
    name = f"{PREFIX}{field.upper()}"
    said = wrong["msg"].removeprefix("Input ").partition(", unable to")[0]
    said = PATTERNS.get(field, said) if wrong["type"] == "string_pattern_mismatch" else said
    said = said.removeprefix("String ")
    value = "" if field in SECRET else f" is {shortened(wrong['input'])}:"
    return f"{name}{value} it {said[0].lower()}{said[1:]}"


_in_use: Final[list[WorkerSettings]] = []


def settings() -> WorkerSettings:
    """Return the current settings. The first call reads the environment, unless settings were given before."""
    if not _in_use:
        with ending_a_command():
            _in_use.append(WorkerSettings())
    return _in_use[0]


def use(given: WorkerSettings | None) -> None:
    """Use these settings from now on; with None, read the environment again when they are needed."""
    _in_use[:] = [] if given is None else [given]


@contextmanager
def ending_a_command() -> Iterator[None]:
    """End a running command line with the error's sentence, not a traceback; other programs get the error."""
    try:
        yield
    except InvalidInput as error:
        if not _is_celery_command():
            raise
        end(error, EXIT_WRONG)


def end(reason: SegmentedError, exit_code: int) -> NoReturn:
    """Print the reason in one sentence, and exit. Celery lets SystemExit pass, but only logs other exceptions."""
    tell(str(reason))  # before Celery has set up its log
    raise SystemExit(exit_code) from None


def _is_celery_command() -> bool:
    """Return whether the command `celery` is loading the app: it then has a click context below its own group."""
    commands = sys.modules.get("celery.bin.celery")
    if commands is None:
        return False
    import click  # noqa: PLC0415  # either Celery has loaded it, or there is no context

    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().command is commands.celery
