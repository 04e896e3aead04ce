"""`segmented pool doctor` names the fault of a pool, and the command to run next."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from segmented.clock import ManualClock
from segmented.keys import shard_keys
from segmented.plans import run_sync
from segmented.stock import Outbox, Pool
from segmented.stock.archiving import FileArchive
from segmented.stock.archiving.plan import archive_plan, no_progress
from segmented.stores.memory import MemoryStore
from segmented.watch.doctor import diagnose
from segmented.watch.reading import reading_plan


def closed(pool: Pool, _: ManualClock) -> None:
    pool.close()


def sold_out(pool: Pool, _: ManualClock) -> None:
    pool.reserve("all", quantity=10)


def overdue(pool: Pool, clock: ManualClock) -> None:
    pool.reserve("late", quantity=2)
    clock.advance(61.0)


def not_taken(pool: Pool, clock: ManualClock) -> None:
    pool.submit("submitted")
    clock.advance(40.0)


def not_taken_by_its_workers(pool: Pool, clock: ManualClock) -> None:
    pool.assign(queue="concerts", step="shop.steps:pack")
    not_taken(pool, clock)


Fault = Callable[[Pool, ManualClock], None]
FAULTS: Final[dict[Fault, tuple[str, str]]] = {
    closed: ("it is closed, and takes no more orders", "segmented pool archive poster --to FILE"),
    sold_out: ("it is sold out, 10 on hold may come back", "segmented pool restock poster UNITS --id ID"),
    overdue: ("1 hold ended without a sweep", "segmented pool expire poster"),
    not_taken: (
        "no worker takes its submitted orders: the first has been due for 35 s",
        "celery -A segmented.celery.app worker -B",
    ),
    not_taken_by_its_workers: (
        (
            "no worker with queue concerts and step shop.steps:pack takes its submitted orders: "
            "the first has been due for 35 s"
        ),
        "SEGMENTED_QUEUE=concerts SEGMENTED_STEP=shop.steps:pack celery -A segmented.celery.app worker -B",
    ),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_named_with_the_next_command(fault: Fault) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "poster", hold=60.0, outbox=Outbox())
    pool.open(stock=10, segments=3)
    assert diagnose(run_sync(reading_plan("poster"), store)) == []
    fault(pool, clock)
    assert [(one.problem, one.command) for one in diagnose(run_sync(reading_plan("poster"), store))] == [FAULTS[fault]]


def test_a_pool_that_is_not_open_may_have_sold_before() -> None:
    opened, reopened = diagnose(run_sync(reading_plan("poster"), MemoryStore()))
    assert (opened.problem, opened.command) == (
        "it is not open",
        "segmented pool open poster --stock N --segments K",
    )
    assert reopened.command == "segmented pool reopen poster --database URL"


def test_an_archived_pool_is_no_fault_and_opens_in_a_later_epoch(tmp_path: Path) -> None:
    store = MemoryStore()
    pool = Pool(store, "poster")
    pool.open(stock=1, segments=1)
    pool.close()
    run_sync(archive_plan("poster", FileArchive(tmp_path / "archive.jsonl"), no_progress), store)
    (found,) = diagnose(run_sync(reading_plan("poster"), store))
    assert (found.problem, found.is_fault) == ("it was archived, and takes no more orders", False)
    assert found.command == "segmented pool open poster --stock N --segments K --epoch EPOCH"


def test_the_usual_end_of_a_sale_is_not_a_fault() -> None:
    store = MemoryStore()
    Pool(store, "poster").open(stock=1, segments=1)
    Pool(store, "poster").reserve("last")
    Pool(store, "poster").close()
    assert [one.is_fault for one in diagnose(run_sync(reading_plan("poster"), store))] == [False]


def test_units_that_another_program_changed_are_named_with_the_audit() -> None:
    store = MemoryStore()
    pool = Pool(store, "poster")
    pool.open(stock=10, segments=3)
    pool.reserve("first")
    store.model.ask("HINCRBY", shard_keys("poster").meta, "confirmed", 5)
    (found,) = diagnose(run_sync(reading_plan("poster"), store))
    assert found.problem == "its units add up to 15, but 10 were stocked"
    assert found.command == "segmented pool audit poster"
