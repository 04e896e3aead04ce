"""`Pool` and `AsyncPool` as an operator uses them: audit, repair, the ledger read and trimmed."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.models import Trimmed
from segmented.stock import AsyncPool, Pool
from segmented.stores.memory import AsyncMemoryStore, MemoryModel, MemoryStore

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

AnswerT = TypeVar("AnswerT")


@pytest.fixture
def pool(side: Side) -> Pool:
    """One of eight units sold, and two restocked: four changes."""
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2)
    pool.reserve("sold")
    pool.confirm("sold")
    pool.restock(2, restock_id="r1")
    return pool


def test_a_repair_tells_what_it_would_do_and_does_it_with_a_yes(pool: Pool, side: Side) -> None:
    assert pool.audit().is_clean
    side.execute(op.MendNumber(pool.sku, "total", "confirmed", 4, 3))
    report = pool.audit()
    assert (report.is_clean, report.oversold, dict(report.by_kind)) == (False, 0, {"foreign write": 2})
    told = pool.repair(report, yes=False)
    assert [str(repair) for repair in told.repairs] == [
        "left: foreign write: confirmed is 3, the ledger says 1: the difference would be added",
        "left: foreign write: stocked 10, but 9 available + 0 reserved + 3 confirmed: it follows from the others",
    ]
    assert not told.is_clean
    done = pool.repair(report, yes=True)
    assert [str(repair) for repair in done.repairs] == [
        "mended: foreign write: confirmed is 3, the ledger says 1: mended by entry 6",
        "mended: foreign write: stocked 10, but 9 available + 0 reserved + 3 confirmed: it follows from the others",
    ]
    assert (done.done_count, done.is_clean) == (2, True)
    assert pool.audit().is_clean


def test_what_was_oversold_or_refused_wrongly_is_told_although_no_repair_can_mend_it(pool: Pool, side: Side) -> None:
    side.execute(op.MendNumber(pool.sku, "total", "available", 4, 1))
    pool.grant("refused", quantity=2, timeout=0, keep_refusal=True)
    side.execute(op.MendNumber(pool.sku, "total", "available", 6, 9))
    side.execute(op.MendNumber(pool.sku, "total", "confirmed", 7, 15))
    report = pool.audit()
    assert (report.refused_wrongly, report.oversold) == (1, 5)
    told = pool.repair(report, yes=False).repairs
    assert [(repair.kind, repair.order_id) for repair in told[-2:]] == [
        ("refused wrongly", "refused"),
        ("oversold", None),
    ]
    done = pool.repair(report, yes=True)
    assert [(repair.kind, repair.order_id, repair.is_done) for repair in done.repairs][-1] == (
        "refused wrongly",
        "refused",
        False,
    )
    assert (done.after.drift, done.after.oversold, done.is_clean) == ((), 0, False)


def test_a_trim_keeps_what_it_is_told_to(pool: Pool) -> None:
    bad: list[Any] = [-1, 1.5, True, "4"]
    for keep in bad:
        with pytest.raises(InvalidInput, match="number of changes to keep"):
            pool.trim_ledger(keep=keep)
    assert pool.trim_ledger(keep=1_000) == Trimmed(1, 4, is_more_left=False)
    assert pool.trim_ledger(keep=0) == Trimmed(5, 5, is_more_left=False)
    assert pool.audit().is_clean
    assert pool.audit().first_sequence == 5


def test_the_ledger_is_read_to_its_end_in_pages() -> None:
    """Sync and async: the loop over the pages is written by hand in each."""
    clock = MemoryStore().clock
    model = MemoryModel(clock)
    pool = Pool(MemoryStore(model=model, clock=clock), "ticket")
    pool.open(stock=5_000, segments=2)
    for index in range(1_500):
        pool.restock(1, restock_id=f"r{index}")

    async def read(after: int) -> list[int]:
        twin = AsyncPool(AsyncMemoryStore(model=model, clock=clock), "ticket")
        return [entry.sequence async for entry in twin.read_ledger(after=after)]

    for after in (0, 1_499):
        expected = list(range(after + 1, 1_502))
        assert [entry.sequence for entry in pool.read_ledger(after=after)] == asyncio.run(read(after)) == expected
    pool.trim_ledger(keep=0)
    assert [entry.kind for entry in pool.read_ledger()] == ["checkpoint"]


def test_a_repair_that_the_sale_outran_folds_on_and_tries_again() -> None:
    class Busy(MemoryStore):
        """A thousand and one restocks come before each of the first two repairs."""

        hurries = 0

        def execute(self, operation: op.Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
            if isinstance(operation, op.MendNumber) and self.hurries in (1, 2):
                self.hurries += 1
                for index in range(1_001):
                    super().execute(op.Restock("ticket", f"{self.hurries} {index}", 1), deadline=deadline)
            return super().execute(operation, deadline=deadline)

    store = Busy()
    pool = Pool(store, "ticket")
    pool.open(stock=8, segments=2)
    pool.reserve("x")
    store.execute(op.MendNumber("ticket", "total", "reserved", 2, 3))
    store.hurries = 1
    done = pool.repair(pool.audit(), yes=True)
    assert (done.is_clean, done.done_count, store.hurries) == (True, 2, 3)
    assert pool.state().available == 7 + 2 * 1_001
