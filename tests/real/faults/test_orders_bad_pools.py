"""One bad pool, or a bad name among the pools, stops no periodic task for the others."""

from collections.abc import Callable
from typing import Any

import redis

from segmented import protocol as op
from segmented.keys import OUTBOXES, shard_keys
from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stock import Outbox, Pool
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.workers.order_floor import AT_ONCE
from tests.support.workers.selling import until

BAD: dict[str, Callable[[redis.Redis, str], object]] = {
    "an entry that cannot be read": lambda server, sku: server.hset(shard_keys(sku).entries, "bad", "nonsense"),
    "entries of another type": lambda server, sku: (
        server.delete(shard_keys(sku).entries),
        server.set(shard_keys(sku).entries, "nonsense"),
    ),
    "numbers that are none": lambda server, sku: server.hset(shard_keys(sku).meta, "sequence", "nan"),
    "a ledger of another type": lambda server, sku: (
        server.delete(shard_keys(sku).ledger),
        server.set(shard_keys(sku).ledger, "nonsense"),
    ),
}
NAMES = (b"\xff\xfe", b"", b"nobody", b"mug\x1fnonsense", b"\x00", b"x" * 10_000)


def spoil(server: redis.Redis, store: Any) -> None:  # noqa: ANN401  # a store of either kind
    for number, damage in enumerate(BAD.values()):
        bad = Pool(store, f"!bad-{number}", outbox=Outbox())  # it sorts before the good one
        bad.open(stock=10, segments=2)
        bad.submit_many([Order("bad", 1)])
        damage(server, bad.sku)
    server.sadd(OUTBOXES, *NAMES)


def test_a_bad_pool_stops_no_sweep_and_no_other_task_of_the_others(
    open_system: OrderSystemFactory, segmented_server: ValkeyServer
) -> None:
    system = open_system(AT_ONCE, environment={"SEGMENTED_SWEEP_EVERY": "0.3"})
    with redis.Redis.from_url(segmented_server.url) as server:
        spoil(server, system.pool.store)
    system.publisher.close()  # from now on only the sweep notifies workers
    system.submit([("good", 1)])
    worker = system.worker()
    with system.beat():
        system.until_decided(sweeping=False)
    Pool(system.pool.store, system.pool.sku, ttl=0.001, hold=0.001).reserve("late", quantity=3)

    def is_over() -> bool:
        system.pool.store.execute(op.NotePool(system.pool.sku, expire_ms=0))
        system.app.send_task("segmented.expire", queue="segmented-chores")
        return system.pool.state().reserved == 0

    until(is_over)
    for task in ("audit", "finish_transfers", "relay", "forget"):
        system.app.send_task(f"segmented.{task}", queue="segmented-chores")
    until(lambda: system.messages.llen("segmented-chores") == 0 and system.in_hand() == 0)
    log = worker.log()
    assert "Traceback" not in log
    assert [task for task in ("sweep", "expire", "audit") if f"Task segmented.{task}[" not in log] == []
    assert "raised unexpected" not in log
    system.check()
