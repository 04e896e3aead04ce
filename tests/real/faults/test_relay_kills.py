"""A relay, and a process that tells outcomes, are killed at their steps and run again: no change is lost or doubled."""

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore
from segmented.orders import Gate, connect, relay, relaying
from segmented.orders.outcomes import tell_outcomes
from segmented.orders.tables import ledger
from segmented.servers import ValkeyServer
from tests.support.dying import DyingStore, StepCounter, let_die, was_killed
from tests.support.pools.engines import engine_of, gate_on

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

STRIDE: Final = 3
"""Every third step, so that a page has several."""
PAGE: Final = 3
"""So that a short ledger has several pages."""
ROWS: Final = 16
CHANGES: Final = [
    (1, "opened", None),
    *((2 * number + at, kind, f"{number}") for number in range(5) for at, kind in ((2, "reserved"), (3, "confirmed"))),
    *((12, "reserved", f"batch {number}") for number in range(5)),
]
"""The sixteen changes of every pool: sequence number, kind, order."""
ORDERS: Final = 250


def sold(store: RedisStore, sku: str) -> Pool:
    """Open a pool, and sell to twelve entries with sixteen changes."""
    pool = Pool(store, sku)
    pool.open(stock=100, segments=4)
    for number in range(5):
        pool.reserve(f"{number}")
        pool.confirm(f"{number}")
    pool.reserve_many([Order(f"batch {number}") for number in range(5)])
    return pool


def test_killed_at_every_step_and_run_again_each_change_is_there_once(
    store: RedisStore, valkey: ValkeyServer, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "PAGE", PAGE)
    with gate_on(connect(sqlite_url)) as gate:
        gate.create()
        found_after, is_killed = list[int](), True
        for step in count(1, STRIDE):
            pool = sold(store, f"killed {step}")

            def work(counter: StepCounter, sku: str = pool.sku) -> None:
                with RedisStore.from_url(valkey.url) as own, gate_on(connect(sqlite_url)) as its:
                    let_die(its, counter)
                    relay(Pool(DyingStore(own, counter), sku), its, trim_keep=4)

            is_killed = was_killed(work, step)
            found_after.append(check(pool, gate))
            if not is_killed:
                break
        assert (found_after[0], found_after[-1], sorted(set(found_after))) == (0, ROWS, [0, PAGE, 6, 9, ROWS])


def check(pool: Pool, gate: Gate) -> int:
    """Relay again, and compare all rows with the ledger; returns how many the killed process had left."""
    before = rows(gate, pool.sku)
    assert before == CHANGES[: len(before)]
    again = relay(pool, gate, trim_keep=4)
    assert again.copied >= ROWS - len(before)
    relay(pool, gate)
    after = rows(gate, pool.sku)
    assert after[:ROWS] == CHANGES
    assert {kind for _, kind, _ in after[ROWS:]} == {"checkpoint"}
    assert len({number for number, _, _ in after}) == pool.state().sequence
    assert pool.state().relayed == (1, pool.state().sequence)
    assert pool.audit().is_clean
    return len(before)


def rows(gate: Gate, sku: str) -> list[tuple[int, str, str | None]]:
    columns = (ledger.c.sequence, ledger.c.kind, ledger.c.order_id)
    statement = ledger.select().with_only_columns(*columns).where(ledger.c.sku == sku)
    with engine_of(gate).connect() as connection:  # reads without the code under test
        found = connection.execute(statement.order_by(ledger.c.sequence, ledger.c.line))
        return [(number, kind, order_id) for number, kind, order_id in found]


def test_every_outcome_is_told_whatever_step_the_process_dies_at(
    store: RedisStore, valkey: ValkeyServer, postgres_database: str, tmp_path: Path
) -> None:
    """Each killed process leaves few outcomes that the next one tells again."""
    ids = [f"o-{number:03}" for number in range(ORDERS)]
    with Gate(postgres_database) as gate:
        gate.create()
        pool = Pool(store, "mug", gate=gate)
        pool.open(stock=ORDERS, segments=4)
        pool.reserve_many([Order(order_id) for order_id in ids])
        pool.confirm_many(ids[:200])
        pool.cancel_many(ids[200:])
    told = tmp_path / "told"

    def work(counter: StepCounter) -> None:
        def tell(order_id: str, state: str, _: str) -> None:
            with told.open("a") as file:
                file.write(f"{order_id} {state}\n")
            if order_id.endswith("7"):
                counter.count()

        with gate_on(connect(postgres_database)) as its, RedisStore.from_url(valkey.url) as own:
            let_die(its, counter)
            relay(Pool(own, "mug", gate=its), its)
            tell_outcomes(Pool(own, "mug", gate=its), its, tell, goes_on=lambda: True)

    killed = 0
    while was_killed(work, 2 * killed + 2):
        killed += 1
    said = Counter(told.read_text().splitlines())
    states = {order_id: "confirmed" if order_id < "o-200" else "cancelled" for order_id in ids}
    assert set(said) == {f"{order_id} {state}" for order_id, state in states.items()}
    assert killed >= 8
    assert max(said.values()) <= killed
