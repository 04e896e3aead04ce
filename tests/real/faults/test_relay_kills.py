"""A relay that is killed with SIGKILL at any of its steps, and run again: the database has each change once."""

import signal
import subprocess
import sys
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore
from segmented.orders import Gate, connect, relay
from segmented.orders.tables import ledger
from segmented.servers import ValkeyServer
from tests.real.faults.relay_process import PAGE, STRIDE
from tests.support.paths import ROOT
from tests.support.pools.engines import engine_of, gate_on

ENTRIES: Final = 12
ROWS: Final = 16
CHANGES: Final = [
    (1, "opened", None),
    *((2 * number + at, kind, f"{number}") for number in range(5) for at, kind in ((2, "reserved"), (3, "confirmed"))),
    *((12, "reserved", f"batch {number}") for number in range(5)),
]
"""The sixteen changes of every pool: sequence number, kind, order."""


def relayed(valkey: ValkeyServer, database: str, sku: str, first: int, last: int) -> list[str]:
    """Relay once for each step of these, each time a pool of its own; returns what the process says."""
    words = (sys.executable, "-m", "tests.real.faults.relay_process", valkey.url, database, sku, str(first), str(last))
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def sold(store: RedisStore, sku: str) -> Pool:
    """Open a pool, and sell to twelve entries with sixteen changes."""
    pool = Pool(store, sku)
    pool.open(stock=100, segments=4)
    for number in range(5):
        pool.reserve(f"{number}")
        pool.confirm(f"{number}")
    pool.reserve_many([Order(f"batch {number}") for number in range(5)])
    return pool


@pytest.mark.timeout(300)
def test_killed_at_every_step_and_run_again_each_change_is_there_once(valkey: ValkeyServer, sqlite_url: str) -> None:
    with RedisStore.from_url(valkey.url) as store, gate_on(connect(sqlite_url)) as gate:
        gate.create()
        kept = list(sold(store, "whole").read_ledger())
        assert (len({entry.sequence for entry in kept}), len(kept)) == (ENTRIES, ROWS)
        (said,) = relayed(valkey, sqlite_url, "whole", 0, 0)
        steps, copied = map(int, said.split())
        assert copied == ROWS
        pools = [sold(store, f"killed {step}") for step in range(1, steps + 1, STRIDE)]
        ended = relayed(valkey, sqlite_url, "killed {}", 1, steps)
        assert ended == [str(-signal.SIGKILL)] * len(pools)
        found_after = [check(pool, gate) for pool in pools]
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
