"""The servers of a sale: those that the user names, and embedded servers for the others."""

from __future__ import annotations

import hashlib
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput, SegmentedError
from segmented.masking import masked
from segmented.orders import connect
from segmented.orders.engine import parse, shown as database_shown
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.celery.selling.choices import Choices

OWN_CONNECTIONS: Final = 8
"""Connections of the command itself, with spare ones for an observer."""
CONCURRENCY: Final = 4
"""Orders that each worker processes concurrently: while one waits for its commit, another uses the processor."""


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
                message = f"{server.name} (process {server.pid}) has stopped by itself{last}"
                raise SegmentedError(message)


@contextmanager
def servers(choices: Choices) -> Iterator[Servers]:
    """Start the servers that were not named, and stop them at the end. Raises InvalidInput."""
    # First those that may be wrong, so that a mistyped name starts nothing and creates nothing on disk.
    if choices.url is not None:
        RedisStore.from_url(choices.url).close()
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
        yield Servers(_settings(url, database, choices.broker), tuple(embedded))


def _settings(url: str, database: str, broker: str | None) -> WorkerSettings:
    """Return the sale's settings; others, such as `segment_wait`, come from the environment as for any worker."""
    try:
        return WorkerSettings(
            url=SecretStr(url),
            database=SecretStr(database),
            broker=None if broker is None else SecretStr(broker),
            broker_on_stock_server=True,  # allowed: a sale of one file, with one command
            queue=queue_name(url, database),
            concurrency=CONCURRENCY,
            ends_with_stdin=True,
        )
    except InvalidInput as error:
        raise InvalidInput(_in_options(str(error))) from error


def _in_options(sentence: str) -> str:
    """Name the option that the user gave, instead of the variable."""
    for option in ("url", "database", "broker"):
        sentence = re.sub(rf"\bSEGMENTED_{option.upper()}\b", f"--{option}", sentence)
    return sentence


def queue_name(url: str, database: str) -> str:
    """Name the queue after stock and orders: sales that share only a broker never take each other's orders.

    The same servers give the same name, so that a second run finds and finishes the messages of the first.
    """
    where = f"{masked(url)} {database_shown(parse(database))}"
    return f"segmented-sell-{hashlib.sha256(where.encode()).hexdigest()[:12]}"
