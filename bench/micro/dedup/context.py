"""The server of the benchmark: its databases for the broker and for each kind of records."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis

from segmented import RedisStore
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.display import Progress

BROKER: Final = 0
RECORDS: Final = 1
"""Databases of the worker part: broker and records are separate, as the settings of `Once` require."""
MEMORY: Final = 2
FEW: Final = 3
MANY: Final = 4
NAMESPACE: Final = "bench"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 30
    """Rounds, if there is time; each runs every kind of task once, in random order."""
    tasks: int = 50
    """Tasks per kind and round."""
    records: int = 5_000
    """Records whose memory is measured."""
    live_keys: tuple[int, int] = (2_000, 1_000_000)
    """Numbers of live keys, between which the server's time for a claim is compared; of the second, as many as there is
    time for."""
    claims: int = 20_000
    """Claims at each of the two numbers, if there is time."""
    seconds: float = 15.0
    """Maximum seconds of the rounds, of filling the server, and of the claims: each ends with what it has by then."""


@dataclass(frozen=True, slots=True)
class BenchContext:
    """The server, the sizes and the progress callback."""

    url: str
    sizes: Sizes
    progress: Progress


def at_database(url: str, number: int) -> str:
    """Return the URL of another database of the server."""
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key != "db"]
    if parts.scheme == "unix":
        return f"unix://{parts.netloc}{parts.path}?{urlencode([*query, ('db', number)])}"
    return urlunsplit((parts.scheme, parts.netloc, f"/{number}", urlencode(query), ""))


@contextmanager
def emptied(url: str) -> Iterator[None]:
    """Check that the server is usable and empty; it is emptied at the end. Raises InvalidInput."""
    with RedisStore.from_url(url):
        pass  # raises a clear error for an unusable server
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
    """Connect a store and a plain client to a database; the database is emptied at the end."""
    url = at_database(context.url, number)
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as client:
        try:
            yield store, client
        finally:
            client.flushdb()
