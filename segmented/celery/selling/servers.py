"""The options of a sale, checked before a server is contacted, and its servers: named ones, and embedded others."""

from __future__ import annotations

import hashlib
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput, SegmentedError
from segmented.files import STDOUT, check_apart, check_writable
from segmented.masking import masked
from segmented.models import SEGMENT_COUNT_MAX, STOCK_MAX
from segmented.orders import connect
from segmented.orders.engine import parse, shown as database_shown
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from segmented.celery.selling.order_formats import Reading

WORKERS_MAX: Final = 64
STOCK_SCHEMES: Final = ("redis://", "rediss://", "unix://")
REPUBLISH_SECONDS_MIN: Final = 1.0
OWN_CONNECTIONS: Final = 8
"""Connections of the command itself, with spare ones for an observer."""
CONCURRENCY: Final = 4
"""Messages that each worker processes concurrently: while one waits for its commit, another uses the processor."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of one sale."""

    file: Path
    stock: int
    segment_count: int
    reading: Reading
    """How to read the file."""
    worker_count: int
    url: str | None
    database: str | None
    broker: str | None
    data: Path | None
    results: Path | None
    force: bool
    """Replace the results file."""
    json: Path | None
    republish_after: float

    @property
    def is_kept(self) -> bool:
        """Return whether the servers outlive the sale."""
        return self.data is not None or None not in (self.url, self.database)

    def check(self) -> None:
        """Check the options. Raises InvalidInput."""
        _check_range("--stock", self.stock, STOCK_MAX)
        _check_range("--segments", self.segment_count, SEGMENT_COUNT_MAX)
        _check_range("--workers", self.worker_count, WORKERS_MAX)
        if self.reading.sku is not None and not self.reading.sku.strip():
            raise InvalidInput("--sku names no sku")
        if not self.republish_after >= REPUBLISH_SECONDS_MIN:
            message = f"--republish-after {self.republish_after:g} must be {REPUBLISH_SECONDS_MIN:g} second or more"
            raise InvalidInput(message)
        given = [name for name, value in (("--url", self.url), ("--database", self.database)) if value is not None]
        if self.data is not None and given:
            raise InvalidInput(
                f"--data keeps the servers that this command starts, so {' and '.join(given)} cannot be given with it"
            )
        if self.url is not None and not self.url.startswith(STOCK_SCHEMES):
            message = f"--url {masked(self.url)} is not a Redis URL: it should begin with {', '.join(STOCK_SCHEMES)}"
            raise InvalidInput(message)
        if self.database is not None:
            parse(self.database)
        for option, path in (("--results", self.results), ("--json", self.json)):
            if path is not None:
                check_writable(path, option)
        check_apart({"the orders": self.file, "--results": self.results, "--json": self.json})
        is_replacing = self.results is not None and self.results != STDOUT and self.results.is_file()
        if is_replacing and not self.force:
            raise InvalidInput(f"--results {self.results} exists: name another file, or give --force to replace it")


def _check_range(option: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidInput(f"{option} {value} must be between 1 and {most:,}")


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of stock, orders and messages."""

    settings: WorkerSettings
    """The settings of the sale's workers."""
    embedded: tuple[ValkeyServer | PostgresServer, ...]

    def look(self) -> None:
        """Raise SegmentedError if an embedded server has stopped, since waiting for it would be useless."""
        for server in self.embedded:
            if server.wait(0):
                last = "".join(f": {line}" for line in server.log_tail(1))
                raise SegmentedError(f"{server.name} (process {server.pid}) has stopped by itself{last}")


@contextmanager
def sale_servers(choices: Choices) -> Iterator[Servers]:
    """Start the servers that were not named, and stop them at the end. Raises InvalidInput."""
    # First those that may be wrong, so that a mistyped name starts nothing and creates nothing on disk.
    if choices.url is not None:
        with RedisStore.from_url(choices.url) as store:
            store.require_pools()
    if choices.database is not None:
        connect(choices.database, pool_size=1).dispose()
    with ExitStack() as stack:
        embedded: list[ValkeyServer | PostgresServer] = []
        url, database = choices.url, choices.database
        if url is None:
            valkey = stack.enter_context(ValkeyServer.start(choices.data))
            embedded.append(valkey)
            url = valkey.url
        if database is None:
            connections = OWN_CONNECTIONS + 2 * CONCURRENCY * choices.worker_count  # a restarted worker overlaps
            postgres = stack.enter_context(PostgresServer.start(choices.data, max_connections=connections))
            embedded.append(postgres)
            database = postgres.url
        yield Servers(_settings(url, database, choices), tuple(embedded))


def _settings(url: str, database: str, choices: Choices) -> WorkerSettings:
    """Return the sale's settings; others, such as `segment_timeout`, come from the environment as for any worker."""
    try:
        return WorkerSettings(
            url=SecretStr(url),
            database=SecretStr(database),
            broker=None if choices.broker is None else SecretStr(choices.broker),
            broker_on_stock_server=True,  # allowed: a sale of one file, with one command
            queue=queue_name(url, database),
            concurrency=CONCURRENCY,
            publish_after=choices.republish_after,
            ends_with_stdin=True,
        )
    except InvalidInput as error:
        raise InvalidInput(_in_options(str(error))) from error


def _in_options(sentence: str) -> str:
    """Name the option that the user gave, instead of the variable."""
    named = {"url": "URL", "database": "DATABASE", "broker": "BROKER", "republish-after": "PUBLISH_AFTER"}
    for option, variable in named.items():
        sentence = re.sub(rf"\bSEGMENTED_{variable}\b", f"--{option}", sentence)
    return sentence


def queue_name(url: str, database: str) -> str:
    """Name the queue after stock and orders: sales that share only a broker never take each other's orders.

    The same servers give the same name, so that a second run finds and finishes the messages of the first.
    """
    where = f"{masked(url)} {database_shown(parse(database))}"
    return f"segmented-sell-{hashlib.sha256(where.encode()).hexdigest()[:12]}"
