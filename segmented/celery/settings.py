"""The settings of a worker: environment variables with the prefix SEGMENTED_, checked once, at the start.

Settings that are valid alone must also fit together: servers that must differ, times, and names.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from celery.app.defaults import SETTING_KEYS
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from segmented.celery.settings_rules import (
    CHECKS,
    PREFIX,
    SECRET,
    broker_beside,
    broker_servers,
    kombu_url,
    refuse_unknown,
    sentence_of,
    stock_servers,
)
from segmented.errors import InvalidInput
from segmented.files import SUFFIX, said_in_file
from segmented.models import SKU_BYTES_MAX, checked_id, plain_text, shortened
from segmented.models.assignments import is_step
from segmented.servers.announcement import announced
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL
from segmented.stores.redis.addresses import Deployment, parse_address

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

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


def check_settings(settings: WorkerSettings) -> None:
    """Raise InvalidInput with one sentence that contains no password."""
    _check_addresses(settings)
    if settings.broker is not None:
        check_apart(settings, settings.broker_url, "SEGMENTED_BROKER")
    _check_times(settings)
    _check_queue_type(settings)
    if settings.metrics_address is not None and "prometheus" not in settings.events:
        raise InvalidInput("SEGMENTED_METRICS_ADDRESS is set: set SEGMENTED_EVENTS to prometheus, too")
    for sku in settings.skus:
        checked_id(sku, "SEGMENTED_SKUS: sku", bytes_max=SKU_BYTES_MAX)
    for name in ("step", "store_with", "on_outcome"):
        named = getattr(settings, name)
        if named is not None and not is_step(named):
            raise InvalidInput(f"SEGMENTED_{name.upper()} is {shortened(named)}: it should be module:function")
    if settings.on_outcome is not None and not ("database" in settings.model_fields_set and settings.relay_every):
        raise InvalidInput(
            "SEGMENTED_ON_OUTCOME needs SEGMENTED_DATABASE, and SEGMENTED_RELAY_EVERY above 0: the worker reads the "
            "outcomes in the ledger that it relays there"
        )


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
        raise InvalidInput(f"{named} names the database of SEGMENTED_URL: stock and messages must not share one")
    if settings.broker_on_stock_server or not broker_is_said(settings):
        return
    if not {one.endpoint for one in stock}.isdisjoint(one.endpoint for one in servers):
        raise InvalidInput(_endangering(f"{named} is"))


def _endangering(what: str) -> str:
    return (
        f"{what} on the server of SEGMENTED_URL, where a full queue stops the sale: "
        "name another server, or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
    )


def _check_addresses(settings: WorkerSettings) -> None:
    for field, check in CHECKS.items():
        said: SecretStr | None = getattr(settings, field)
        try:
            if said is not None:
                check(said.get_secret_value())
        except InvalidInput as error:
            raise InvalidInput(f"SEGMENTED_{field.upper()} cannot be used: {error}") from None


def _check_queue_type(settings: WorkerSettings) -> None:
    if settings.queue_type == "classic":
        return
    said = f"SEGMENTED_QUEUE_TYPE is {settings.queue_type}"
    if urlsplit(settings.broker_url).scheme not in AMQP_SCHEMES:
        message = f"{said}: it should be classic, since only RabbitMQ has other queues, and its broker is amqp://"
        raise InvalidInput(message)
    if QUORUM_SETTING not in SETTING_KEYS:
        raise InvalidInput(f"{said}: it needs Celery 5.5 or newer, and {version('celery')} is installed")


def _check_times(settings: WorkerSettings) -> None:
    limit = settings.task_time_limit
    if settings.visibility_timeout < LIMITS_IN_VISIBILITY * limit:
        raise InvalidInput(
            f"SEGMENTED_VISIBILITY_TIMEOUT is {settings.visibility_timeout:g} s: it should be at least twice "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
    if settings.segment_timeout >= limit:
        raise InvalidInput(
            f"SEGMENTED_SEGMENT_TIMEOUT is {settings.segment_timeout:g} s: it should be less than "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
    for name, seconds in (("SEGMENT_TTL", settings.segment_ttl), ("PUBLISH_AFTER", settings.publish_after)):
        if settings.hold < seconds:
            raise InvalidInput(
                f"SEGMENTED_HOLD is {settings.hold:g} s: it should be at least SEGMENTED_{name}, which is {seconds:g} s"
            )
