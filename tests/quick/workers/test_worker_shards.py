"""The workers' own task takes envelopes of shards, and keeps a message that names a shard which is not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import SecretStr

from segmented import protocol as op
from segmented.celery import connections as opening, current, tasks
from segmented.celery.messages import Envelope, read_envelope
from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput
from segmented.models import Order
from segmented.orders import Gate
from segmented.stock import EnvelopePublisher, Outbox, Pool, ShardedPool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from segmented.servers import ValkeyServer

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


@pytest.mark.parametrize("name", ["concert\x1f0a}:meta", "concert\x1f64a", "concert\x1f", "\x1f0a"])
def test_a_text_that_is_no_name_is_refused_in_a_message_and_when_a_pool_is_opened(store: RedisStore, name: str) -> None:
    with pytest.raises(InvalidInput):
        read_envelope(({"v": 1, "sku": name, "orders": ["a"]},), {})
    with pytest.raises(InvalidInput):
        opening.connections().pool(name)
    ShardedPool(store, "concert").open(stock=90, segments=6, shards=SHARDS)
    assert opening.connections().pool("concert\x1f2a").state().available == 30
