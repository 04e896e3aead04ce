"""The tasks of the benchmark: trivial ones, plain and with `Once`, and markers of the begin and end of a burst.

`python -m bench.micro.dedup.tasks URL` is a `celery worker` of one process with these tasks. It ends when its standard
input ends, so that it never outlives its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
from celery import Celery

from segmented.celery.settings import kombu_url
from segmented.dedup import StoreEffect
from segmented.dedup.celery import Once, serial, unique

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.dedup.celery import OnceRule

BROKER: Final = 0
RECORDS: Final = 1
"""Databases of the worker part: broker and records are separate, as the settings of `Once` require."""
NAMESPACE: Final = "bench"
QUEUE: Final = "bench"
SAID: Final = "bench:said"
"""List of messages from the worker."""
GO: Final = "bench:go"
"""List of messages to the worker."""
WAIT_SECONDS: Final = 60
INCREMENT: Final = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
COUNTS: Final = "bench:counts"

PLAIN: Final = "plain"
PLAIN_EFFECT: Final = "plain, one script"
EXACTLY_ONCE: Final = "unique, with an effect"
ONCE: Final = ("unique", "serial")
"""Rules of the tasks that do nothing."""
OPTIONS = ("--pool=solo", "--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")


def at_database(url: str, number: int) -> str:
    """Return the URL of another database of the server."""
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key != "db"]
    if parts.scheme == "unix":
        return f"unix://{parts.netloc}{parts.path}?{urlencode([*query, ('db', number)])}"
    return urlunsplit((parts.scheme, parts.netloc, f"/{number}", urlencode(query), ""))


def make_app(url: str) -> Celery:
    """Create the app for the publisher or the worker."""
    app = Celery("bench-dedup", broker=kombu_url(at_database(url, BROKER)), set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        once_url=at_database(url, RECORDS),
        once_namespace=NAMESPACE,
    )
    _add_marks(app, url)
    _add_trivial(app, url)
    return app


def _add_marks(app: Celery, url: str) -> None:
    """Add the tasks before and after a burst; the first holds the worker until everything is published."""
    began: list[float] = []
    client = redis.Redis.from_url(at_database(url, BROKER))

    def hold() -> None:
        client.lpush(SAID, "held")
        deadline = time.monotonic() + WAIT_SECONDS
        while client.blpop([GO], 1) is None and time.monotonic() < deadline:
            pass  # one second at a time: the client's socket timeout ends longer waits
        began[:] = [time.perf_counter(), time.process_time()]

    def mark() -> None:
        ended = [time.perf_counter(), time.process_time()]
        client.lpush(SAID, json.dumps([after - before for before, after in zip(began, ended, strict=True)]))

    app.task(name="hold", shared=False)(hold)
    app.task(name="mark", shared=False)(mark)


def _add_trivial(app: Celery, url: str) -> None:
    increment = redis.Redis.from_url(at_database(url, RECORDS)).register_script(INCREMENT)

    def nothing(item: str) -> None:
        """Do nothing."""

    def by_script(item: str) -> Any:  # noqa: ANN401  # what the script returns
        return increment(keys=[f"{COUNTS}:{item}"], args=[1])

    def by_effect(item: str) -> StoreEffect:
        return StoreEffect(INCREMENT, keys=[f"{COUNTS}:{item}"], arguments=[1])

    bodies: dict[str, tuple[OnceRule, Callable[[str], object]]] = {
        "unique": (unique("{item}"), nothing),
        "serial": (serial("{item}"), nothing),
        EXACTLY_ONCE: (unique("{item}", keep="1d"), by_effect),
    }
    for name, (rule, body) in bodies.items():
        app.task(name=name, shared=False, base=Once, once=rule)(body)
    app.task(name=PLAIN, shared=False)(nothing)
    app.task(name=PLAIN_EFFECT, shared=False)(by_script)


def main(url: str) -> None:
    """Run the worker until standard input ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    make_app(url).worker_main(["worker", *OPTIONS])


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
