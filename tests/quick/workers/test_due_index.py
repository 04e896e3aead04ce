"""Workers look only at pools that are due: an index says when, and no pool costs anything before."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from segmented import Order, Outbox, Pool, protocol as op
from segmented.celery import chores, connections as opening, settings as current
from segmented.celery.settings import WorkerSettings
from segmented.keys import due_key, shard_keys
from segmented.models import Cart
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from segmented.stock import Carts
from segmented.stores.redis import RedisStore

FAR: float = 4e12


@pytest.fixture
def store(valkey: ValkeyServer, order_database: str) -> Iterator[RedisStore]:
    """A stock server that the workers of this process are told of."""
    said = WorkerSettings(url=SecretStr(valkey.url), database=SecretStr(order_database), broker_on_stock_server=True)
    current.use(said)
    chores.adopted_until.clear()  # as in a process that has just started
    chores.idle_until.clear()
    with RedisStore.from_url(valkey.url) as made:
        yield made
    opening.disconnect()
    current.use(None)


def sent(store: RedisStore) -> int:
    return int(store.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def looked_at(duty: str) -> list[str]:
    """Return the pools that a worker looks at now; nothing is due in them."""
    seen: list[str] = []

    def work(name: str) -> tuple[None, None]:
        seen.append(name)

        return None, None

    chores.work_on_due(duty, 1.0, work, goes_on=lambda: True)  # type: ignore[arg-type]  # a duty
    return seen


def test_an_order_among_100_000_pools_is_found_without_a_look_at_another(store: RedisStore) -> None:
    for first in range(0, 100_000, 10_000):
        quiet = {f"quiet-{number}": FAR for number in range(first, first + 10_000)}
        store.client.zadd(due_key("sweep"), quiet)
    pool = Pool(store, "mug", outbox=Outbox(publish_after=0.001))
    pool.open(stock=10, segments=1)
    assert looked_at("sweep") == ["mug"]
    pool.submit("lost")  # and its message
    before = sent(store)
    assert looked_at("sweep") == ["mug"]
    assert sent(store) - before <= 4


def test_a_pool_with_nothing_due_costs_one_command_until_its_turn(store: RedisStore) -> None:
    for number in range(200):
        store.execute(op.NotePool(f"sku-{number}"))
    assert len(looked_at("expire")) == 200
    before = sent(store)
    assert looked_at("expire") == []
    assert sent(store) - before == 1


def test_a_pool_that_is_noted_while_a_worker_looks_at_it_is_looked_at_again(store: RedisStore) -> None:
    store.execute(op.NotePool("mug"))
    ((name, seen),) = store.execute(op.ListDuePools("sweep", 0)).pools
    store.execute(op.MovePool("sweep", name, seen, None, 1))  # nothing was due: once more in three seconds
    ((_, again),) = store.client.zrange(due_key("sweep"), 0, -1, withscores=True)
    store.execute(op.NotePool("mug", sweep_ms=10))
    ((_, noted),) = store.client.zrange(due_key("sweep"), 0, -1, withscores=True)
    assert noted < again
    assert not store.execute(op.MovePool("sweep", name, str(again), None, 1))


def test_a_hold_ends_on_a_server_that_nobody_has_verified(store: RedisStore, order_database: str) -> None:
    with Gate(order_database) as gate:
        pool = Pool(store, "mug", gate=gate)
        pool.open(stock=10, segments=1)
        pool.reserve(Order("a", 3))
    store.client.zadd(shard_keys("mug").holds, {"a": 1}, xx=True)
    store.client.hset(shard_keys("mug").meta, "server", "another")  # as after a restart
    assert chores.expired("mug")[0] == 1
    assert pool.state().available == 10


def test_a_hold_that_ends_before_the_first_one_is_not_late_by_more_than_a_quiet_look(store: RedisStore) -> None:
    """The worker saw a hold of ten minutes; nobody notes the shorter one that comes later."""
    for number in range(20):
        store.execute(op.NotePool(f"sku-{number}"))
    ((name, seen), *_) = store.execute(op.ListDuePools("expire", 0)).pools
    now_ms = int(store.client.time()[0]) * 1_000
    assert store.execute(op.MovePool("expire", name, seen, 600_000, 1_000))
    assert (store.client.zscore(due_key("expire"), name) or 0) - now_ms <= 20 * 10_000 + 1_000


def test_5_000_abandoned_holds_of_a_gated_pool_come_back_in_one_look(store: RedisStore, order_database: str) -> None:
    with Gate(order_database) as gate:
        gate.create()
        pool = Pool(store, "mug", gate=gate, hold=0.001, ttl=0.001)
        Pool(pool.plain.store, pool.plain.sku, gate=gate).open(stock=5_000, segments=4)
        pool.reserve_many([Order(f"{number}") for number in range(5_000)])
    while (store.execute(op.ReadNextDue("mug")).hold_in_ms or 1) > 0:
        pass
    before = sent(store)
    assert chores.expired("mug")[0] == 5_000
    assert pool.plain.state().available == 5_000
    assert sent(store) - before < 60


def test_a_hold_enters_its_pool_before_it_ends_and_its_process_only_once(store: RedisStore) -> None:
    pool = Pool(store, "mug", hold=60.0)
    pool.open(stock=10, segments=1)
    store.client.zadd(due_key("expire"), {"mug": FAR})  # a worker found it quiet
    before_ms = float(store.client.time()[0]) * 1_000
    pool.reserve("a")
    first = store.client.zscore(due_key("expire"), "mug")
    assert first is not None
    assert before_ms + 60_000 <= first < FAR
    before = sent(store)
    pool.reserve("b")
    assert sent(store) - before == 1
    pool.reserve("c", hold=30.0)
    assert (store.client.zscore(due_key("expire"), "mug") or 0) < first


def test_a_hold_that_its_process_did_not_note_is_found_although_a_look_found_nothing(store: RedisStore) -> None:
    """The first hold was noted and has ended by a confirm; a worker looked early, and 1,000 other pools are quiet."""
    store.client.zadd(due_key("expire"), {f"quiet-{number}": FAR for number in range(1_000)})
    pool = Pool(store, "mug", hold=60.0)
    pool.open(stock=10, segments=1)
    pool.reserve("a")
    pool.confirm("a")
    for _ in range(3):
        mark = (store.client.zscore(due_key("expire"), "mug") or 0) % 1
        store.client.zadd(due_key("expire"), {"mug": 1 + mark})  # its turn has come
        assert looked_at("expire") == ["mug"]
        now_ms = float(store.client.time()[0]) * 1_000
        assert (store.client.zscore(due_key("expire"), "mug") or FAR) <= now_ms + 62_000
    before = sent(store)
    pool.reserve("b")
    assert sent(store) - before == 1
    store.client.zadd(due_key("expire"), {"mug": 1})
    chores.work_on_due("expire", 1.0, chores.expired, goes_on=lambda: True)
    now_ms = float(store.client.time()[0]) * 1_000
    assert (store.client.zscore(due_key("expire"), "mug") or FAR) <= now_ms + 62_000


def test_a_return_and_a_line_of_a_cart_enter_their_pools(store: RedisStore, order_database: str) -> None:
    with Gate(order_database) as gate:
        gate.create()
        pool, plain = Pool(store, "mug", gate=gate), Pool(store, "cap")
        pool.open(stock=10, segments=1)
        plain.open(stock=10, segments=1)
        pool.reserve("a")
        pool.confirm("a")
        store.client.zadd(due_key("finish_transfers"), {"mug": FAR})
        Pool(store, "mug", gate=gate).return_units("a", 1, return_id="r")
    assert (store.client.zscore(due_key("finish_transfers"), "mug") or FAR) < FAR
    store.client.zadd(due_key("expire"), {"cap": FAR})
    Carts(store).reserve(Cart("cart", [("cap", 1)]))
    assert (store.client.zscore(due_key("expire"), "cap") or FAR) < FAR


def test_a_return_is_looked_for_until_its_process_enters_its_pool_again(store: RedisStore) -> None:
    store.execute(op.NotePool("mug", expire_ms=op.SOON_MS))
    store.client.zadd(due_key("finish_transfers"), {"mug": 1})
    before_ms = int(store.client.time()[0]) * 1_000
    assert looked_at("finish_transfers") == ["mug"]
    assert (store.client.zscore(due_key("finish_transfers"), "mug") or 0) >= before_ms + op.SOON_MS


def test_a_worker_that_found_nothing_due_does_not_ask_again_at_once(store: RedisStore) -> None:
    store.client.zadd(due_key("expire"), {"mug": FAR})
    chores.expire.apply()
    before = sent(store)
    chores.expire.apply()
    assert sent(store) == before
    chores.expire()  # a program's own call is always served
    assert sent(store) - before == 1
