"""Orders in a worker's hands, one by one and in shards."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import SecretStr

from segmented import MemoryStore, Order, Pool, protocol as op
from segmented.celery import connections as opening, settings as current, tasks
from segmented.celery.messages import Envelope
from segmented.celery.settings import WorkerSettings
from segmented.clock import ManualClock
from segmented.errors import PoolDiverged
from segmented.orders import Gate, connect
from segmented.orders.sale import expire_voided, take_order
from segmented.servers import ValkeyServer
from segmented.stock import EnvelopePublisher, Grant, Outbox, ShardedPool
from segmented.stores.redis import RedisStore

SKU = "mug"


@pytest.fixture
def gate(sqlite_url: str) -> Iterator[Gate]:
    with Gate(connect(sqlite_url)) as gate:
        gate.create()
        gate.open(SKU, [3, 3])
        yield gate


def gated_pool(clock: ManualClock | None = None) -> Pool:
    pool = Pool(MemoryStore(clock=clock or ManualClock()), SKU)
    pool.open(stock=6, segments=2, gated=True)
    return pool


def test_after_ten_grants_that_were_overtaken_an_order_gives_up_and_keeps_its_units(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tokens = ManualClock(), list[int]()
    pool = Pool(MemoryStore(clock=clock), "cup")
    Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=1)
    others, grant_of = Pool(pool.store, pool.sku), pool.grant

    def lapsing(order: Order, **options: Any) -> Grant:  # noqa: ANN401  # those of `grant`
        """Grant, and let the lease lapse while another order is sold."""
        grant = grant_of(order, **options)
        assert isinstance(grant, Grant)
        tokens.append(grant.fencing_token)
        clock.advance(11.0)  # a grant's lease lives for 10
        take_order(others, gate, Order(f"other {len(tokens)}", 1), timeout=0)
        return grant

    monkeypatch.setattr(pool, "grant", lapsing)
    with pytest.raises(PoolDiverged, match="10 grants in a row were superseded"):
        take_order(pool, gate, Order("a", 2), timeout=0)
    assert len(tokens) == 10
    assert (pool.state().confirmed, pool.state().reserved, gate.totals("cup").sold) == (10, 2, 10)


def test_lapsed_holds_are_voided_first_and_what_the_database_confirmed_stays_sold(gate: Gate) -> None:
    clock = ManualClock()
    pool = gated_pool(clock)
    pool.reserve(Order("lapsed", 2))
    pool.reserve(Order("stored", 1))
    gate.confirm(order_id="stored", sku=SKU, segment=0, quantity=1, epoch=1)
    clock.advance(1_000)
    decided = expire_voided(pool, gate)
    assert sorted((settled.order_id, settled.state) for settled in decided) == [
        ("lapsed", "expired"),
        ("stored", "confirmed"),
    ]
    assert pool.audit().is_clean


SHARDS: Final = 3


@pytest.fixture
def store(valkey: ValkeyServer, order_database: str) -> Iterator[RedisStore]:
    """A stock server that the workers of this process are told of."""
    said = WorkerSettings(url=SecretStr(valkey.url), database=SecretStr(order_database), broker_on_stock_server=True)
    current.use(said)
    with RedisStore.from_url(valkey.url) as made:
        yield made
    opening.disconnect()
    current.use(None)


def test_the_envelopes_of_every_shard_are_taken_by_the_task(store: RedisStore) -> None:
    bodies: list[Any] = []

    def send(sku: str, order_ids: Sequence[str]) -> None:
        bodies.append(json.loads(json.dumps(Envelope(sku, tuple(order_ids)).body())))

    with EnvelopePublisher(send) as publisher:
        pool = ShardedPool(store, "concert", outbox=Outbox(publisher))
        pool.open(stock=90, segments=6, shards=SHARDS)
        handles = pool.submit_many([*(Order(f"o{index}", 1) for index in range(40)), Order("large", 50)])
        assert not [handle for handle in handles if isinstance(handle, Exception)]
    assert len({body["sku"] for body in bodies}) == SHARDS
    assert sum(int(tasks.take_envelope(body).removesuffix(" settled")) for body in bodies) == 41
    assert (pool.state().confirmed, pool.audit().is_clean) == (90, True)


def test_shards_of_a_pool_of_other_workers_are_left_to_them_and_that_is_said_once(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    pool = ShardedPool(store, "others", outbox=Outbox())
    pool.open(stock=90, segments=6, shards=SHARDS, queue="concerts", step="shop:charge")
    for index in range(40):
        pool.submit(f"o{index}")
    shards = [shard.sku for shard in pool.shards]
    answers = [tasks.take_envelope({"v": 1, "sku": name, "orders": ["o1", "o2", "o3"]}) for name in 2 * shards]
    assert answers == [""] * 2 * SHARDS
    assert [record.levelname for record in caplog.records if "leaves its submitted orders" in record.message] == [
        "ERROR"
    ]
    assert [store.execute(op.ReadOutbox(name)).waiting for name in shards] == [
        shard.state().order_count for shard in pool.shards
    ]
    assert (pool.state().confirmed, pool.state().reserved) == (0, 40)


def test_of_a_gated_pool_of_other_workers_no_order_database_is_asked(
    store: RedisStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gate(f"sqlite:///{tmp_path / 'theirs.sqlite'}") as theirs:
        theirs.create()
        pool = Pool(store, "gated", gate=theirs, outbox=Outbox())
        pool.open(stock=10, segments=2, queue="concerts")
        pool.submit("a")
        for _ in range(2):
            assert tasks.take_envelope({"v": 1, "sku": "gated", "orders": ["a"]}) == ""
        assert [record.levelname for record in caplog.records if "'gated'" in record.message] == ["ERROR"]
        assert store.execute(op.ListMessages(current.settings().queue)) == ()
        assert store.execute(op.ReadOutbox("gated")).waiting == 1


@pytest.mark.parametrize(
    "name", ["concert\x1f7a", "concert\x1f0zz", "concert\x1f0a}:meta", "concert\x1f", "other\x1f0a"]
)
def test_a_message_that_names_no_shard_which_is_there_is_kept_and_opens_nothing(store: RedisStore, name: str) -> None:
    pool = ShardedPool(store, "concert")
    pool.open(stock=90, segments=6, shards=SHARDS)
    state = pool.state()
    assert tasks.take_envelope({"v": 1, "sku": name, "orders": ["a"]}) == ""
    (kept,) = store.execute(op.ListMessages(current.settings().queue))
    assert json.loads(kept.text)[0][0]["sku"] == name
    assert pool.state() == state
