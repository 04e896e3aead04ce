"""Transactions of the order database, its versions, and processes that learn of the gate."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import IntegrityError

from segmented import Pool, RedisStore
from segmented.errors import (
    DatabaseUnavailable,
    GrantSuperseded,
    InvalidInput,
    NotConfirmed,
    OrderMismatch,
    StoreRefused,
)
from segmented.models import Order
from segmented.models.submitted import Deciding
from segmented.orders import Claim, Gate, confirming, connect
from segmented.orders.answers import EpochChanged, Missing, SegmentRow, SoldOut, Voided
from segmented.orders.envelopes import take_envelope
from segmented.orders.tables import HEAD
from segmented.servers import ValkeyServer
from segmented.stock.outbox import Outbox
from tests.support.command_line import ran
from tests.support.pools.gating import NEW, REPLAY, claim, confirm, sold
from tests.support.workers.envelope_till import BOTH


def test_the_callers_statements_and_the_order_happen_together(gate: Gate) -> None:
    gate.open("mug", [5])
    with gate.transaction(**claim("o-1")) as connection:
        connection.execute(text("CREATE TABLE invoices (order_id VARCHAR(20))"))
        connection.execute(text("INSERT INTO invoices VALUES ('o-1')"))
    with gate.transaction(**claim("o-2")) as connection:
        assert connection.execute(text("SELECT order_id FROM invoices")).all() == [("o-1",)]
    assert (sold(gate), gate.confirmed_units("mug")) == ({0: 2}, 2)


def test_the_body_does_not_run_for_an_order_that_is_not_newly_confirmed(gate: Gate) -> None:
    gate.open("mug", [1, 0])
    confirm(gate, "o-1", fence=7)
    gate.void(order_id="o-2", sku="mug", quantity=1)
    refused: list[tuple[dict[str, Any], object]] = [
        (claim("o-1"), REPLAY),
        (claim("o-2"), Voided(replay=True)),
        (claim("o-3"), SoldOut(total=1, sold=1)),
        (claim("o-3") | {"segment": 2}, Missing()),
        (claim("o-3") | {"epoch": 2}, EpochChanged(epoch=1)),
    ]
    for arguments, answer in refused:
        with pytest.raises(NotConfirmed) as caught, gate.transaction(**arguments):
            pytest.fail("the body ran")
        assert caught.value.answer == answer
    with pytest.raises(GrantSuperseded) as superseded, gate.transaction(**claim("o-3"), fence=6):
        pytest.fail("the body ran")
    assert (superseded.value.order_id, superseded.value.fence) == ("o-3", 7)
    with pytest.raises(OrderMismatch), gate.transaction(**(claim("o-1") | {"quantity": 2})):
        pytest.fail("the body ran")


def insert_twice(connection: Connection, insert: str = "INSERT") -> None:
    for _ in range(2):
        connection.execute(text(f"{insert} INTO invoices VALUES ('o-1')"))


def handle_a_failed_statement(connection: Connection) -> None:
    with suppress(IntegrityError):
        insert_twice(connection, "INSERT" if connection.dialect.name == "postgresql" else "INSERT OR ROLLBACK")


def roll_back(connection: Connection) -> None:
    connection.rollback()


def roll_back_and_go_on(connection: Connection) -> None:
    connection.rollback()
    connection.execute(text("SELECT 1"))


def roll_back_and_begin(connection: Connection) -> None:
    connection.exec_driver_sql("ROLLBACK")
    connection.exec_driver_sql("BEGIN")


@pytest.mark.parametrize("body", [handle_a_failed_statement, roll_back, roll_back_and_go_on, roll_back_and_begin])
def test_a_transaction_that_ended_within_its_body_is_refused(gate: Gate, body: Callable[[Connection], None]) -> None:
    gate.open("mug", [5])
    create_invoices(gate)
    with pytest.raises(StoreRefused, match="order 'o-1' is not stored"), gate.transaction(**claim("o-1")) as begun:
        body(begun)
    assert (sold(gate), gate.confirmed_units("mug")) == ({0: 1}, 1)
    assert confirm(gate, "o-1") == NEW


def test_a_statement_that_may_fail_fails_alone_in_a_savepoint(gate: Gate) -> None:
    gate.open("mug", [5])
    create_invoices(gate)
    with gate.transaction(**claim("o-1")) as begun, suppress(IntegrityError), begun.begin_nested():
        insert_twice(begun)
    assert sold(gate) == {0: 2}


def create_invoices(gate: Gate) -> None:
    with gate.transaction(**claim("o-0")) as connection:
        connection.execute(text("CREATE TABLE invoices (order_id VARCHAR(20) PRIMARY KEY)"))


def test_a_transaction_on_a_full_segment_gets_quota_first(gate: Gate) -> None:
    gate.open("mug", [0, 1, 1])
    with gate.transaction(**(claim("o-1") | {"quantity": 2})):
        pass
    assert gate.totals("mug").segments == (
        SegmentRow(0, 2, 2, 0, 1),
        SegmentRow(1, 0, 0, 0, 1),
        SegmentRow(2, 0, 0, 0, 1),
    )


def test_a_transaction_whose_segment_is_full_again_and_again_gives_up(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirming, "MOVES_MAX", 1)
    gate.open("mug", [0, 8])
    with pytest.raises(StoreRefused, match="segment 0 of 'mug' was full 1 times in a row; nothing changed"):
        confirm_in_transaction(gate)
    confirm_in_transaction(gate)
    assert sold(gate) == {0: 1, 1: 0}


def confirm_in_transaction(gate: Gate) -> None:
    with gate.transaction(**claim("o-1")):
        pass


# --- deadlines and failures ---


def test_a_locked_row_is_waited_for_until_the_deadline_only(
    gate: Gate, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    hasty = open_gate(order_database, timeout=0.1)
    gate.open("mug", [5])
    order = Claim(Order("o-3"), "mug", 0, 1)
    with gate.transaction(**claim("o-1")):
        for ask in (lambda: confirm(hasty, "o-2"), lambda: hasty.confirm_many([order])):
            with pytest.raises(DatabaseUnavailable, match="lock"):
                ask()
    assert confirm(hasty, "o-2") == NEW
    assert hasty.confirm_many([order]) == [NEW]
    assert sold(gate) == {0: 3}


def test_a_pool_that_is_too_small_is_named_after_the_deadline(
    order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(order_database, pool_size=1, timeout=0.1)
    gate.open("mug", [5])
    with gate.transaction(**claim("o-1")), pytest.raises(DatabaseUnavailable, match="its pool is too small"):
        confirm(gate, "o-2")
    assert confirm(gate, "o-2") == NEW


def test_missing_tables_are_a_refusal_not_an_outage(sqlite_url: str) -> None:
    with Gate(connect(sqlite_url)) as gate, pytest.raises(StoreRefused, match="segmented_segments"):
        confirm(gate, "o-1")


LATER: Final = (
    rf"^the order database \S+ has tables of revision 9999, and this release of segmented knows revision {HEAD} only: "
    r"use the release that made them, or name another database$"
)


@pytest.fixture
def own_database(sqlite_url: str) -> str:
    """An empty one, without tables."""
    return sqlite_url


@pytest.fixture
def engine(own_database: str) -> Iterator[Engine]:
    """Change the database by hand."""
    engine = connect(own_database)
    yield engine
    engine.dispose()


def execute(engine: Engine, sql: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(sql))


def stored(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT version_num FROM segmented_alembic_version")).scalars())


def test_tables_of_a_later_release_are_refused_before_anything_is_read_or_created(
    own_database: str, engine: Engine, valkey: ValkeyServer
) -> None:
    with Gate(connect(own_database)) as gate:
        gate.create()
        execute(engine, "UPDATE segmented_alembic_version SET version_num = '9999'")
        execute(engine, "DROP TABLE segmented_changes")
        with pytest.raises(InvalidInput, match=LATER):
            Gate(connect(own_database))
        with pytest.raises(InvalidInput, match=LATER):
            gate.create()
    opening = ("pool", "open", "mug", "--stock", "1", "--segments", "1", "--gated", "--create-tables")
    for command in (opening, ("orders", "migrate")):
        said = ran(*command, "--database", own_database, url=valkey.url)
        assert (said.returncode, "tables of revision 9999" in said.stderr, said.stdout) == (2, True, "")
    assert not inspect(engine).has_table("segmented_changes")
    assert stored(engine) == ["9999"]


WITHOUT = "the pool is gated, and this worker has no order database"
ANY_MORE = "the pool has no gate any more"


@pytest.fixture
def flush(store: RedisStore) -> Callable[[], object]:
    """Forget everything, as a server without persistence does when it starts again."""
    flush: Callable[[], object] = store.client.flushall
    return flush


@pytest.mark.parametrize("has_step", [False, True], ids=["without a step", "with a step"])
@pytest.mark.parametrize("decides", BOTH)
def test_a_worker_learns_that_the_pool_has_a_gate_now(
    store: RedisStore, gate: Gate, flush: Callable[[], object], decides: Deciding, *, has_step: bool
) -> None:
    pool = Pool(store, "mug", outbox=Outbox(decides=decides))
    pool.open(stock=10, segments=2)
    assert not pool.is_gated()
    flush()
    Pool(store, "mug", gate=gate).open(stock=10, segments=2, epoch=2)
    pool.submit_many([Order("a", 1), Order("b", 2)])
    ran: list[object] = []
    report = take_envelope(pool, ["a", "b"], step=ran.append if has_step else None)
    assert report.put_off == {"a": WITHOUT, "b": WITHOUT}
    assert (ran, pool.state().confirmed, gate.totals("mug").sold) == ([], 0, 0)
    assert pool.is_gated()


def test_a_worker_learns_that_the_pool_has_no_gate_any_more(
    store: RedisStore, gate: Gate, flush: Callable[[], object]
) -> None:
    pool = Pool(store, "mug", outbox=Outbox())
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    assert pool.is_gated()
    flush()
    Pool(store, "mug").open(stock=10, segments=2, epoch=2)
    pool.submit("a")
    assert take_envelope(pool, ["a"], gate=gate).put_off == {"a": ANY_MORE}
    assert (gate.totals("mug").sold, pool.is_gated()) == (0, False)
