"""`segmented orders prune`, on a real server and both databases; and with kills in the middle."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import update

from segmented import Pool, RedisStore
from segmented.errors import InvalidInput
from segmented.orders import Gate, audit_both, connect, forget, forgetting, prune, relay
from segmented.orders.tables import ledger, orders
from segmented.servers import ValkeyServer
from segmented.stock import delete
from tests.support.command_line import ran
from tests.support.pools.gating import each_database

SKU: Final = "mug"
DATE: Final = "2026-01-01"
BEFORE: Final = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool forget without the ten seconds of its notice, and processes read again at once."""
    monkeypatch.setattr(forgetting, "NOTICE_MS", 0)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 0.0)


@pytest.fixture
def pool(store: RedisStore, gate: Gate, order_database: str) -> Pool:
    """Of 100 units 12 are sold to 6 orders of 2025, of which the pool remembers 2; its ledger is relayed."""
    pool = Pool(store, SKU, gate=gate)
    pool.open(stock=100, segments=2)
    for number in range(4):
        sold(pool, f"old-{number}")
    pool.reserve("void")
    pool.cancel("void")
    for _ in range(3):
        relay(pool.plain, gate, trim_keep=0)
    for _ in range(2):
        forget(pool.plain, gate, grace=0)
    for number in range(2):
        sold(pool, f"known-{number}")
    relay(pool.plain, gate)
    aged(order_database)
    return pool


def sold(pool: Pool, order_id: str) -> None:
    pool.reserve(order_id, quantity=2)
    pool.confirm(order_id)


def aged(database: str, made_at: datetime = datetime(2025, 6, 1, tzinfo=UTC)) -> None:
    """Let all rows be of the year before, or of another time."""
    engine = connect(database)
    with engine.begin() as connection:
        connection.execute(update(orders).values(created_at=made_at))
        connection.execute(update(ledger).values(changed_at=made_at))
    engine.dispose()


def rows(gate: Gate, sku: str = SKU) -> list[str]:
    return [row.order_id for row in gate.each_order(sku)]


def is_clean(pool: Pool, gate: Gate) -> bool:
    return audit_both(pool.plain, gate).is_clean and pool.audit().is_clean


@each_database
def test_what_an_open_pool_has_forgotten_goes_and_both_audits_stay_clean(
    pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    words = ["orders", "prune", "--before", DATE, "--database", order_database]
    tried = ran(*words, "--dry-run", url=valkey.url)
    assert tried.stdout.splitlines()[0].startswith("would be deleted: 5 orders and ")
    assert len(rows(gate)) == 7
    done = json.loads(ran(*words, "--yes", "--json", "-", url=valkey.url).stdout)
    assert (done["orders"], done["units"], done["unknown"], done["is_changed"]) == (5, 8, [], True)
    assert rows(gate) == ["\tpruned", "known-0", "known-1"]
    assert (gate.confirmed_units(SKU), gate.totals(SKU).sold, is_clean(pool, gate)) == (12, 12, True)
    again = ran(*words, "--yes", url=valkey.url)
    assert again.stdout.splitlines()[0] == "deleted: 0 orders and 0 ledger entries from before 2026-01-01 00:00"
    sold(pool, "new")
    assert relay(pool.plain, gate).copied > 0
    assert (is_clean(pool, gate), pool.confirm("known-0").replay) == (True, True)


def test_a_ledger_that_was_pruned_still_says_which_orders_are_old_enough_to_forget(
    pool: Pool, gate: Gate, store: RedisStore, order_database: str
) -> None:
    prune(store, gate, BEFORE)
    sold(pool, "new")
    for _ in range(3):
        relay(pool.plain, gate, trim_keep=0)
    assert forget(pool.plain, gate, grace=3_600).orders == 2
    aged(order_database, datetime.now(UTC) - timedelta(hours=2))
    assert forget(pool.plain, gate, grace=3_600).orders == 1


def test_all_orders_of_a_deleted_pool_go_and_those_of_an_unknown_one_only_if_asked(
    pool: Pool, gate: Gate, store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    lost = Pool(store, "plate", gate=gate)
    lost.open(stock=10, segments=1)
    sold(lost, "plate-1")
    aged(order_database)
    pool.close()
    relay(pool.plain, gate)
    delete(pool)
    for key in store.client.keys("seg:{plate:*"):
        store.client.delete(key)
    words = ["orders", "prune", "--before", DATE, "--database", order_database, "--yes"]
    done = ran(*words, url=valkey.url)
    assert "orders of 1 pool stay, which the stock server does not know: plate; --gone deletes them, too" in done.stderr
    assert (rows(gate), rows(gate, "plate")) == (["\tpruned"], ["plate-1"])
    assert json.loads(ran(*words, "--gone", "--json", "-", url=valkey.url).stdout)["orders"] == 1


def test_younger_rows_stay_and_a_date_of_today_is_refused(
    pool: Pool, gate: Gate, store: RedisStore, order_database: str, valkey: ValkeyServer
) -> None:
    assert prune(store, gate, datetime(2025, 1, 1, tzinfo=UTC)).orders == 0
    today = f"{datetime.now(UTC):%Y-%m-%d}T23:59"
    done = ran("orders", "prune", "--before", today, "--database", order_database, "--yes", url=valkey.url)
    assert (done.returncode, "is less than a day ago: an order may be repeated until then" in done.stderr) == (2, True)
    with pytest.raises(InvalidInput, match="needs a time zone"):
        prune(store, gate, datetime(2025, 1, 1))  # noqa: DTZ001  # as a user would
    assert len(rows(gate)) == 7
    assert pool.state().confirmed == 12


def test_killed_behind_every_transaction_and_run_again_nothing_is_counted_twice(
    pool: Pool, gate: Gate, order_database: str, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from segmented.orders import pruning  # noqa: PLC0415  # its page is changed

    monkeypatch.setattr(pruning, "PAGE", 1)
    kills = 0
    while killed_in_the_next_delete(order_database, valkey.url):
        kills += 1
        assert is_clean(pool, gate)
    assert (kills, rows(gate)) == (5, ["\tpruned", "known-0", "known-1"])
    assert (gate.confirmed_units(SKU), gate.totals(SKU).sold) == (12, 12)


def killed_in_the_next_delete(database: str, url: str) -> bool:
    """Prune in a process that is killed once a page of orders is gone. Returns whether there was one."""
    child = os.fork()
    if child == 0:
        from segmented.orders import Gate  # noqa: PLC0415  # in the child
        from segmented.orders.pruning import PruneRows  # noqa: PLC0415  # as above

        remove = PruneRows.delete

        def killed(self: PruneRows, *given: Any) -> tuple[int, int]:  # noqa: ANN401  # those of `delete`
            remove(self, *given)
            os.kill(os.getpid(), signal.SIGKILL)
            return 0, 0

        PruneRows.delete = killed  # type: ignore[method-assign,assignment]  # to be killed
        with RedisStore.from_url(url) as store, Gate(database) as gate:
            prune(store, gate, BEFORE)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
