"""Restocks, withdrawals and resizes whose second step reaches a pool after its rebuild count once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import Pool, RedisStore, protocol as op
from segmented.errors import ChangeDiverged, EpochEnded
from segmented.models import TooFew
from segmented.orders import (
    audit_both,
    open_gated,
    rebuild,
    resize_gated,
    restock_gated,
    withdraw_gated,
)
from segmented.orders.verifying import compare_once
from tests.support.overtaking import OvertakenStore
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments, on both sides."""
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=20, segments=4)
    return pool


@pytest.fixture
def fresh(valkey: ValkeyServer) -> Iterator[Pool]:
    """The same pool in another process."""
    with RedisStore.from_url(valkey.url) as other:
        yield Pool(other, SKU)


def rebuilt(pool: Pool, gate: Gate) -> None:
    """Freeze the pool and rebuild it, as another process does after a loss."""
    pool.store.execute(op.FreezePool(SKU, pool.state().epoch))
    rebuild(pool, gate)


def late(pool: Pool, kind: type[op.Operation[Any]], happens: Callable[[], object], nth: int = 1) -> Pool:
    """Return the pool of a process that is held up before its nth operation of a kind."""
    return Pool(OvertakenStore(pool.store, kind, nth, happens), SKU, outbox=pool.outbox)


def check_both(pool: Pool, gate: Gate, *, sold: int, free: int) -> None:
    """Both sides have these numbers, and agree about every order."""
    state = pool.state()
    assert (state.confirmed, state.reserved, state.available) == (sold, 0, free)
    assert gate.totals(SKU).sold == sold
    assert pool.audit().is_clean
    report = audit_both(pool, gate)
    assert (report.is_clean, report.unsettled) == (True, 0), report.differences


def test_a_restock_whose_units_a_rebuild_has_counted_adds_nothing(pool: Pool, fresh: Pool, gate: Gate) -> None:
    held_up = late(pool, op.Restock, lambda: rebuilt(fresh, gate))
    answer = restock_gated(held_up, gate, 5, restock_id="r")
    assert (answer.units, answer.replay) == (5, True)  # type: ignore[union-attr]  # a closed pool is another test
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (25, 25, ())
    assert restock_gated(fresh, gate, 5, restock_id="r").replay  # type: ignore[union-attr]  # as above
    check_both(fresh, gate, sold=0, free=25)


def test_a_withdrawal_that_is_held_up_until_after_a_rebuild_is_made_once(pool: Pool, fresh: Pool, gate: Gate) -> None:
    held_up = late(pool, op.Withdraw, lambda: rebuilt(fresh, gate))
    withdraw_gated(held_up, gate, 5, withdraw_id="w")
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (15, 15, ())
    check_both(fresh, gate, sold=0, free=15)


def test_a_withdrawal_that_was_made_and_lost_and_counted_is_not_made_again_by_a_late_step(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    def happens() -> None:
        with forgotten(pool):
            withdraw_gated(fresh, gate, 5, withdraw_id="w")
        rebuilt(fresh, gate)

    withdraw_gated(late(pool, op.Withdraw, happens), gate, 5, withdraw_id="w")
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (15, 15, ())
    check_both(fresh, gate, sold=0, free=15)


def test_a_withdrawal_whose_rebuild_comes_before_the_database_is_finished_in_the_same_call(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    class Held:
        """A gate whose process is held up before it finishes a change."""

        def __init__(self) -> None:
            self.stocking = gate.stocking
            self._finish, gate.stocking.finish = gate.stocking.finish, self.finish  # type: ignore[method-assign]  # until it is called

        def finish(self, change: Any) -> Any:  # noqa: ANN401  # as the gate's
            gate.stocking.finish = self._finish  # type: ignore[method-assign]  # put back
            rebuilt(fresh, gate)
            return self._finish(change)

    Held()
    withdraw_gated(pool, gate, 5, withdraw_id="w")
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (15, 15, ())
    check_both(fresh, gate, sold=0, free=15)


def test_a_resize_that_is_held_up_until_after_a_rebuild_has_rows_for_its_segments(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    held_up = late(pool, op.Resize, lambda: rebuilt(fresh, gate))
    assert resize_gated(held_up, gate, 8).state.segment_count == 8
    assert {(row.segment, row.epoch) for row in gate.totals(SKU).segments} == {(number, 2) for number in range(8)}
    for number in range(20):
        sell(fresh, gate, f"o-{number}")
    check_both(fresh, gate, sold=20, free=0)


def test_a_change_for_an_epoch_that_has_ended_is_refused_by_the_pool(pool: Pool, gate: Gate) -> None:
    rebuilt(pool, gate)
    for operation in (op.Restock(SKU, "r", 5, epoch=1), op.Withdraw(SKU, "w", 5, epoch=1)):
        with pytest.raises(EpochEnded, match="pool 'mug' is in epoch 2"):
            pool.store.execute(operation)
    check_sells_the_rest(pool, gate)


def test_a_withdrawal_of_units_that_the_pool_has_forgotten_to_have_sold_freezes_it_and_is_undone(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    compare_once(fresh, gate)  # it has seen nothing since
    with forgotten(pool):
        sell(pool, gate, "lost", 18)
    with pytest.raises(ChangeDiverged, match="the pool has given units up, but 18 of 20 are sold"):
        withdraw_gated(fresh, gate, 5, withdraw_id="w")
    assert fresh.state().frozen is not None
    rebuild(fresh, gate)
    assert withdraw_gated(fresh, gate, 5, withdraw_id="w") == TooFew("w", 5, 2)
    assert (gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (20, ())
    check_both(fresh, gate, sold=18, free=2)
    check_sells_the_rest(fresh, gate)
