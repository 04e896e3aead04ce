"""A pool's ledger is relayed to the order database: each change once, wherever a relay, a server or a database ends."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import select

from segmented import Order, Pool, RedisStore
from segmented.errors import InvalidInput
from segmented.keys import shard_keys
from segmented.models import LedgerEntry
from segmented.orders import Gate, connect, relay, relaying
from segmented.orders.sale import take_order
from segmented.orders.tables import ledger
from segmented.servers import ValkeyServer
from segmented.stock import ShardedPool
from tests.support.pools.engines import engine_of, gate_on

pytestmark = pytest.mark.usefixtures("patient_attempts")

SKU: Final = "mug"


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """A hundred units in four segments, without an order database, and one order confirmed."""
    pool = Pool(store, SKU)
    pool.open(stock=100, segments=4)
    sell(pool, "first")
    return pool


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "PAGE", 3)


def sell(pool: Pool, *order_ids: str) -> None:
    """Two changes an order."""
    for order_id in order_ids:
        pool.reserve(order_id)
        pool.confirm(order_id)


def rows(gate: Gate, *columns: str, sku: str = SKU) -> list[tuple[Any, ...]]:
    chosen = [ledger.c[name] for name in columns]
    order = (ledger.c.shard, ledger.c.epoch, ledger.c.sequence, ledger.c.line)
    with engine_of(gate).connect() as connection:  # reads without the code under test
        return [tuple(row) for row in connection.execute(select(*chosen).where(ledger.c.sku == sku).order_by(*order))]


def ids(gate: Gate) -> list[tuple[int, int]]:
    return [(epoch, sequence) for epoch, sequence in rows(gate, "epoch", "sequence")]


@contextmanager
def forgotten(pool: Pool) -> Iterator[None]:
    """Take back all that the body does to the pool's keys, as a server that lost its last writes does."""
    raw, names = pool.store.client, shard_keys(pool.sku).listed()  # type: ignore[attr-defined]  # a RedisStore
    before = {name: raw.dump(name) for name in names}
    yield
    raw.delete(*names)
    for name, content in before.items():
        if content is not None:
            raw.restore(name, 0, content)


# --- what is copied ---


def test_every_change_is_in_the_database_once_with_all_that_the_ledger_has(pool: Pool, gate: Gate) -> None:
    pool.reserve_many([Order("a", 30, "ann"), Order("b", 2), Order("c", 1)])
    pool.cancel("c")
    pool.restock(7, restock_id="r-1")
    granted = pool.grant(Order("g", 2, "bob"), timeout=0)
    kept = list(pool.read_ledger())
    assert relay(pool, gate).copied == len(kept) == 9
    found = [in_utc(row) for row in rows(gate, *(column.name for column in ledger.c))]
    assert found == [expected(entry, line) for entry, line in placed(kept)]
    assert [row[6] for row in found] == [None, "first", "first", "a", "b", "c", "c", "r-1", "g"]
    assert (found[3][7], found[3][8], sum(int(part.partition(":")[2]) for part in found[3][11].split(","))) == (
        30,
        "ann",
        30,
    )
    assert found[8][12] == granted.fencing_token  # type: ignore[union-attr]  # it was granted


def in_utc(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with the zone that SQLite does not keep."""
    return (*row[:9], row[9].replace(tzinfo=UTC) if row[9].tzinfo is None else row[9], *row[10:])


def placed(kept: list[LedgerEntry]) -> Iterator[tuple[LedgerEntry, int]]:
    for number, entry in enumerate(kept):
        yield entry, number - next(at for at, one in enumerate(kept) if one.sequence == entry.sequence)


def expected(entry: LedgerEntry, line: int) -> tuple[object, ...]:
    """Return the row of an entry, put together by hand."""
    parts = None if entry.parts == ((entry.segment, entry.quantity),) else ",".join(f"{a}:{b}" for a, b in entry.parts)
    at: Any = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=entry.at_us)
    return (
        SKU,
        0,
        entry.epoch,
        entry.sequence,
        line,
        entry.kind,
        entry.order_id,
        entry.quantity,
        entry.customer_id,
        at,
        entry.segment,
        parts or None,
        entry.fencing_token,
        entry.note or None,
        entry.chain,
        False,
    )


@pytest.mark.real
@pytest.mark.usefixtures("small_pages")
def test_two_relays_at_once_copy_each_change_once(
    pool: Pool, postgres_database: str, open_gate: Callable[..., Gate], valkey: ValkeyServer
) -> None:
    gate = open_gate(postgres_database, timeout=60.0)
    sell(pool, *(f"o-{number}" for number in range(50)))
    copied: list[int] = []

    def run() -> None:
        with RedisStore.from_url(valkey.url) as store:
            copied.append(relay(Pool(store, SKU), gate).copied)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(copied), sum(copied)) == (4, 103)
    assert ids(gate) == [(1, number) for number in range(1, 104)]


@pytest.mark.usefixtures("small_pages")
def test_a_relay_ends_at_its_timeout_and_the_next_one_goes_on(pool: Pool, gate: Gate) -> None:
    sell(pool, "second", "third")
    first = relay(pool, gate, timeout=1e-9)
    assert (first.copied, first.entries_behind, first.shards[0].relayed) == (3, 4, (1, 3))
    assert 0 < first.seconds_behind < 60
    assert relay(pool, gate, timeout=60).copied == 4


# --- trimming behind it ---


def test_a_database_that_lacks_trimmed_entries_gets_none(pool: Pool, gate: Gate, tmp_path: Path) -> None:
    relay(pool, gate, trim_keep=0)
    with gate_on(connect(f"sqlite:///{tmp_path / 'other.sqlite'}")) as other:
        other.create()
        with pytest.raises(
            InvalidInput, match="the database has nothing of the ledger of 'mug', and the ledger goes on"
        ):
            relay(pool, other)
        assert rows(other, "sequence") == []


# --- lost changes ---


def test_changes_that_the_server_lost_stay_and_are_marked(pool: Pool, gate: Gate, valkey: ValkeyServer) -> None:
    with forgotten(pool):
        sell(pool, "lost")
        relay(pool, gate)
    with RedisStore.from_url(valkey.url) as store:  # a process that has seen nothing of the loss
        fresh = Pool(store, SKU)
        with pytest.raises(
            InvalidInput, match=r"has changes up to 1-5 of the ledger of 'mug', and the pool is at change"
        ):
            relay(fresh, gate)
    assert pool.state().frozen == (1, 5)  # this process has seen it
    with pytest.raises(InvalidInput, match="the pool is at change 1-3"):
        relay(pool, gate)
    thaw(pool, sold=2)
    sell(pool, "after")
    report = relay(pool, gate)
    assert (report.copied, report.shards[0].marked, report.shards[0].relayed) == (4, 2, (2, 9))
    assert rows(gate, "epoch", "sequence", "order_id", "is_lost") == [
        (1, 1, None, False),
        (1, 2, "first", False),
        (1, 3, "first", False),
        (1, 4, "lost", True),
        (1, 5, "lost", True),
        (2, 6, None, False),
        (2, 7, None, False),
        (2, 8, "after", False),
        (2, 9, "after", False),
    ]
    assert relay(pool, gate).shards[0].marked == 0


def thaw(pool: Pool, *, sold: int) -> None:
    with pytest.raises(Exception, match="is frozen"):
        pool.reserve("refused")
    pool.thaw(sold=sold)


def test_entries_of_the_earlier_epoch_are_relayed_after_a_thaw(pool: Pool, gate: Gate) -> None:
    relay(pool, gate)
    sell(pool, "not relayed")
    with forgotten(pool):
        sell(pool, "lost")
    thaw(pool, sold=3)
    report = relay(pool, gate, trim_keep=0)
    assert (report.copied, report.shards[0].marked) == (4, 0)
    assert ids(gate) == [*((1, number) for number in range(1, 6)), (2, 8), (2, 9)]


def test_numbers_that_were_given_again_are_noticed_and_nothing_is_copied(
    pool: Pool, gate: Gate, valkey: ValkeyServer
) -> None:
    with forgotten(pool):
        sell(pool, "lost")
        relay(pool, gate)
    with RedisStore.from_url(valkey.url) as store:  # a process that has seen nothing of the loss
        fresh = Pool(store, SKU)
        sell(fresh, "second", "third")
        with pytest.raises(InvalidInput, match=r"up to 1-5 .* change 1-6 was not written after them: the server lost"):
            relay(fresh, gate)
    assert [order_id for (order_id,) in rows(gate, "order_id")] == [None, "first", "first", "lost", "lost"]


# --- databases that cannot be used ---


def test_a_second_relay_copies_only_what_is_new(pool: Pool, gate: Gate) -> None:
    first = relay(pool, gate)
    assert (first.copied, first.entries_behind, first.seconds_behind, first.shards[0].relayed) == (3, 0, 0.0, (1, 3))
    assert relay(pool, gate).copied == 0
    sell(pool, "second")
    assert relay(pool, gate).copied == 2
    assert ids(gate) == [(1, number) for number in range(1, 6)]
    assert pool.state().relayed == (1, 5)
    assert pool.audit().is_clean


def test_a_gated_pool_is_relayed_as_well(store: RedisStore, gate: Gate) -> None:
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    for number in range(3):
        take_order(pool, gate, Order(f"o-{number}"), timeout=0)
    assert relay(pool, gate, trim_keep=0).copied == 7
    assert [kind for (kind,) in rows(gate, "kind")] == ["opened", *["reserved", "confirmed"] * 3]


def test_each_shard_has_rows_of_its_own(store: RedisStore, gate: Gate) -> None:
    pool = ShardedPool(store, SKU)
    pool.open(stock=100, segments=4, shards=2)
    for number in range(20):
        pool.reserve(f"o-{number}")
    report = relay(pool, gate)
    assert report.copied == 22
    for number, shard in enumerate(pool.shards):
        kept = [(number, entry.sequence, entry.order_id) for entry in shard.read_ledger()]
        found = rows(gate, "shard", "sequence", "order_id")
        assert [row for row in found if row[0] == number] == kept
        assert report.shards[number].copied == len(kept)


def test_the_ledger_is_trimmed_behind_what_was_relayed(pool: Pool, gate: Gate) -> None:
    sell(pool, *(f"o-{number}" for number in range(20)))
    report = relay(pool, gate, trim_keep=0)
    assert (report.copied, report.shards[0].first_sequence, report.entries_behind) == (43, 44, 1)
    assert [entry.kind for entry in pool.read_ledger()] == ["checkpoint"]
    sell(pool, "later")
    assert relay(pool, gate, trim_keep=4).copied == 3
    assert ids(gate) == [(1, number) for number in range(1, 47)]
    assert pool.audit().is_clean
