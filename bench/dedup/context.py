"""Where the benchmark runs: one server, with databases of it for the broker and for each kind of records."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis

from segmented import RedisStore
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.dedup.sizes import Sizes

BROKER: Final = 0
RECORDS: Final = 1
"""Of the worker part: the broker's and the records' keys are apart, as the settings of `Once` ask for."""
MEMORY: Final = 2
FEW: Final = 3
MANY: Final = 4
NAMESPACE: Final = "bench"


@dataclass(frozen=True, slots=True)
class BenchContext:
    """A server, and who is told how far it is."""

    url: str
    sizes: Sizes
    progress: Callable[[str, int, int], None]


def at_database(url: str, number: int) -> str:
    """Return the URL of another database of the server."""
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key != "db"]
    if parts.scheme == "unix":
        return f"unix://{parts.netloc}{parts.path}?{urlencode([*query, ('db', number)])}"
    return urlunsplit((parts.scheme, parts.netloc, f"/{number}", urlencode(query), ""))


@contextmanager
def emptied(url: str) -> Iterator[None]:
    """Refuse a server that cannot be used, or holds anything: all is removed in the end. Raises InvalidInput."""
    with RedisStore.from_url(url):
        pass  # it refuses, in a sentence, what is no usable server
    with redis.Redis.from_url(url) as client:
        if client.info("keyspace"):
            message = "the server of the benchmark holds keys: name an empty one, since it is emptied in the end"
            raise InvalidInput(message)
        try:
            yield
        finally:
            client.flushall()


@contextmanager
def server_of(context: BenchContext, number: int) -> Iterator[tuple[RedisStore, redis.Redis]]:
    """Connect a store to a database, and a client that looks behind it; the database is emptied in the end."""
    url = at_database(context.url, number)
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as client:
        try:
            yield store, client
        finally:
            client.flushdb()
