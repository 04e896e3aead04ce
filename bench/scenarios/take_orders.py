"""Buyers that reserve and confirm a unit, as a locustfile: one process, or a master and any number of workers.

    SEGMENTED_URL=redis://... locust -f bench/scenarios/take_orders.py --sku mug --stock 1000000 --segments 16

The address may be in a file instead, which SEGMENTED_URL_FILE names. The first process opens the pool unless it exists;
it must not be gated. When the test stops, that process audits the pool; if the audit finds errors it logs them, and its
exit code is 1. Orders interrupted by the stop stay reserved until their hold expires. This is an uncontrolled closed
loop: for figures use `segmented bench`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from locust import User, events, task  # before redis: it patches sockets, sleeping and locks for gevent
from locust.runners import WorkerRunner

from bench.load.page_guard import guard_page
from segmented.errors import PoolMissing, SegmentedError
from segmented.files import said_in_file
from segmented.models import Order, Reserved
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

REQUEST_TYPE: Final = "order"
HOLD_SECONDS: Final = 60.0
URL: Final = "SEGMENTED_URL"
DEFAULT_URL: Final = "redis://localhost:6379/0"
EXIT_DRIFTED: Final = 1

_log = logging.getLogger(__name__)
guard_page()


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def add_options(parser: LocustArgumentParser, **_: object) -> None:
    """Add the options of the pool; Locust's page shows them as fields."""
    parser.add_argument("--sku", env_var="LOCUST_SKU", default="locust", help="the pool to sell from")
    parser.add_argument("--stock", env_var="LOCUST_STOCK", type=int, default=1_000_000, help="units, if it is opened")
    parser.add_argument("--segments", env_var="LOCUST_SEGMENTS", type=int, default=16, help="if it is opened")
    parser.add_argument("--shards", env_var="LOCUST_SHARDS", type=int, default=1, help="on a cluster, if it is opened")


@events.test_start.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def open_pool(environment: Environment, **_: object) -> None:
    """Open the pool once: in the master or only process, not in workers."""
    if isinstance(environment.runner, WorkerRunner):
        return
    options = _options(environment)
    with RedisStore.from_url(_url()) as store:
        if options.shards > 1:
            sharded = ShardedPool(store, options.sku)
            answer: object = sharded.open(stock=options.stock, segments=options.segments, shards=options.shards)
        else:
            answer = Pool(store, options.sku).open(stock=options.stock, segments=options.segments)
    _log.info("pool %s: %s", options.sku, answer)


@events.test_stop.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def audit_pool(environment: Environment, **_: object) -> None:
    """Audit the pool. Orders may still be under way: an audit can read a pool while it sells."""
    if isinstance(environment.runner, WorkerRunner):
        return
    sku = _options(environment).sku
    try:
        with RedisStore.from_url(_url()) as store:
            report = find_pool(store, sku).audit()
    except PoolMissing as error:  # the test ended before it began: a busy machine may use up --run-time on the start
        environment.process_exit_code = EXIT_DRIFTED
        _log.error("%s", error)  # one sentence says it
        return
    wrong = report.drift_count + report.refused_wrongly
    if wrong:
        environment.process_exit_code = EXIT_DRIFTED
        _log.error("pool %s: the audit found %d errors: %s", sku, wrong, report.drift)
    else:
        _log.info("pool %s: audited, no drift", sku)


class Buyer(User):
    """Orders one unit after another, without a pause."""

    def on_start(self) -> None:
        """Share one store with the other users of this process."""
        self.pool = _pool(_options(self.environment).sku)

    @task
    def buy(self) -> None:
        """Reserve a unit and confirm it; a refusal is a normal answer, under its own name."""
        order = Order(uuid.uuid4().hex, 1)
        begun = time.monotonic()
        failure: SegmentedError | None = None
        try:
            answer = self.pool.reserve(order)
            if isinstance(answer, Reserved):
                self.pool.confirm(order.order_id)
            name = "Sold" if isinstance(answer, Reserved) else type(answer).__name__
        except SegmentedError as error:
            failure = error
            name = type(error).__name__
        self.environment.events.request.fire(
            request_type=REQUEST_TYPE,
            name=name,
            response_time=(time.monotonic() - begun) * 1_000,
            response_length=0,
            exception=failure,
            context={},
        )


_guard = threading.Lock()
_pools: dict[str, Pool | ShardedPool] = {}


def _pool(sku: str) -> Pool | ShardedPool:
    """Return this process's pool of a sku; the first buyer connects it, and the others wait."""
    with _guard:
        if sku not in _pools:
            _pools[sku] = find_pool(RedisStore.from_url(_url()), sku, hold=HOLD_SECONDS)
        return _pools[sku]


def _options(environment: Environment) -> Any:  # noqa: ANN401  # a namespace that Locust fills
    return environment.parsed_options


def _url() -> str:
    return said_in_file(URL) or os.environ.get(URL) or DEFAULT_URL
