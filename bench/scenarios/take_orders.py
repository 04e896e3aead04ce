"""Buyers that reserve and confirm a unit, as a locustfile: one process, or a master and any number of workers.

    SEGMENTED_URL=redis://... locust -f bench/scenarios/take_orders.py --sku mug --stock 1000000 --segments 16

The address may be in a file instead, which SEGMENTED_URL_FILE names. The first process opens the pool unless it exists;
it must not be gated. Locust's page shows its units and segments. When the test stops, that process audits the pool and
logs the verdict in one line; if a promise was broken, its exit code is 1. Orders interrupted by the stop stay reserved
until their hold expires. This is an uncontrolled closed loop: for figures use `segmented bench`.
"""

from __future__ import annotations

import logging
import time
import uuid
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from locust import User, events, task  # before redis: it patches sockets, sleeping and locks for gevent
from locust.runners import WorkerRunner

from bench.load.page import PoolPage, guard_page, host, store
from segmented.errors import PoolDiffers, SegmentedError
from segmented.models import Order, Reserved
from segmented.stock import Pool, ShardedPool, find_pool

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

REQUEST_TYPE: Final = "order"
HOLD_SECONDS: Final = 60.0

_log = logging.getLogger(__name__)
guard_page()


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def add_options(parser: LocustArgumentParser, **_: object) -> None:
    """Add the options of the pool; Locust's page shows them as fields."""
    parser.add_argument("--sku", env_var="LOCUST_SKU", default="locust", help="the pool to sell from")
    parser.add_argument("--stock", env_var="LOCUST_STOCK", type=int, default=1_000_000, help="units, if it is opened")
    parser.add_argument("--segments", env_var="LOCUST_SEGMENTS", type=int, default=16, help="if it is opened")
    parser.add_argument("--shards", env_var="LOCUST_SHARDS", type=int, default=1, help="on a cluster, if it is opened")


@events.init.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def show_pool(environment: Environment, **_: object) -> None:
    """Show the pool on the page while it sells; audit it when the test stops."""
    page = PoolPage(environment)
    environment.events.test_stop.add_listener(lambda **_: page.judge())  # type: ignore[no-untyped-call]  # Locust's


@events.test_start.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def open_pool(environment: Environment, **_: object) -> None:
    """Open the pool once: in the master or only process, not in workers."""
    if isinstance(environment.runner, WorkerRunner):
        return
    options = _options(environment)
    try:
        if options.shards > 1:
            sharded = ShardedPool(store(), options.sku)
            sharded.open(stock=options.stock, segments=options.segments, shards=options.shards)
        else:
            Pool(store(), options.sku).open(stock=options.stock, segments=options.segments)
    except PoolDiffers:  # it is open with numbers of its own: sold as it is
        _log.info("pool %s was open before, with other numbers than the options'", options.sku)
    state = find_pool(store(), options.sku).state()
    _log.info("pool %s: %s units left in %d segments", options.sku, f"{state.available:,}", len(state.stock))


class Buyer(User):
    """Orders one unit after another, without a pause."""

    host = host()

    def on_start(self) -> None:
        """Share one pool with the other users of this process."""
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


@cache
def _pool(sku: str) -> Pool | ShardedPool:
    return find_pool(store(), sku, hold=HOLD_SECONDS)


def _options(environment: Environment) -> Any:  # noqa: ANN401  # a namespace that Locust fills
    return environment.parsed_options
