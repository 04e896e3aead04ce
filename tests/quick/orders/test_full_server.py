"""A full server refuses new orders, and everything that ends an order goes on: so it becomes less full."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from segmented import Order, Outbox, Pool, RedisStore, Reserved, Settled, protocol as op
from segmented.errors import StoreRefused
from segmented.models import Shard
from segmented.models.submitted import Deciding
from segmented.orders import Gate, relay, take_envelope
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved
from segmented.stock import ShardedPool
from segmented.stock.outbox import SweepTerms, sweep

SKU: Final = "mug"


@pytest.fixture
def fill(store: RedisStore) -> Iterator[Callable[[], None]]:
    """Make the server full: each command that may need memory is refused."""
    yield lambda: store.client.config_set("maxmemory", 1)
    store.client.config_set("maxmemory", 0)


class Broker:
    """A broker on another server: what is sent to it is kept in a list."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def room(self) -> int | None:
        return None

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        assert sku == SKU
        self.sent += order_ids


@pytest.mark.parametrize("decides", ["at acceptance", "in the worker"])
@pytest.mark.parametrize("is_gated", [False, True])
def test_submitted_orders_are_finished_while_the_server_is_full(
    store: RedisStore, gate: Gate, fill: Callable[[], None], decides: Deciding, *, is_gated: bool
) -> None:
    pool = Pool(store, SKU, outbox=Outbox(decides=decides, publish_after=0.001))
    if is_gated:
        Pool(pool.store, pool.sku, gate=gate).open(stock=100, segments=4)
    else:
        pool.open(stock=100, segments=4)
    pool.submit_many([Order(f"{number}", 2) for number in range(20)])
    fill()
    with pytest.raises(StoreRefused, match="maxmemory"):
        pool.submit("one more")
    broker = Broker()
    while len(set(broker.sent)) < 20:
        sweep(store.execute, SKU, broker, terms=SweepTerms(base=0.001))
    take_envelope(pool, sorted(set(broker.sent)), gate=gate if is_gated else None)
    assert (pool.state().confirmed, pool.state().reserved) == (40, 0)
    assert pool.audit().is_clean


def test_reserved_orders_end_in_each_way_while_the_server_is_full(
    store: RedisStore, gate: Gate, fill: Callable[[], None]
) -> None:
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=100, segments=4)
    bought = pool.reserve("bought")
    assert isinstance(bought, Reserved)
    pool.reserve("given back")
    Pool(store, SKU, ttl=0.001, hold=0.001).reserve("abandoned")
    fill()
    with pytest.raises(StoreRefused, match="maxmemory"):
        pool.reserve("one more")
    finish_reserved(pool, gate, Order("bought"), bought)
    cancel_order(pool, gate, Order("given back"))
    ended: list[Settled] = []
    while not ended:
        ended += expire_voided(pool, gate)
    assert [one.order_id for one in ended] == ["abandoned"]
    relay(pool, gate, trim_keep=0)
    assert (pool.state().confirmed, pool.state().available) == (1, 99)


def test_units_on_their_way_between_shards_arrive_while_the_server_is_full(
    store: RedisStore, fill: Callable[[], None]
) -> None:
    pool = ShardedPool(store, SKU)
    pool.open(stock=20, segments=4, shards=2)
    source = pool.shards[0].sku
    assert isinstance(source, Shard)
    assert store.execute(op.SendUnits(source, 1, 3, is_stored=False)) is not None
    assert pool.state().away == 3
    fill()
    pool.finish_transfers()
    assert (pool.state().away, pool.state().available) == (0, 20)
