"""`segmented watch` and the exporter read held segments, holds that end, the outbox, and rates."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.keys import shard_keys
from segmented.plans import run_sync
from segmented.stock import Outbox, Pool, ShardedPool
from segmented.stock.archiving import FileArchive, archive_plan, no_progress
from segmented.stores.memory import MemoryStore
from segmented.watch.reading import (
    PoolReading,
    as_json,
    diagnose,
    known_plan,
    pace,
    reading_plan,
    readings_plan,
    waiting_line,
)
from segmented.watch.screen import bars, marks, screen, widened
from segmented.watch.server import exposition


def read(store: MemoryStore, *skus: str) -> tuple[PoolReading, ...]:
    return run_sync(readings_plan(skus, {}), store).pools


def test_a_reading_counts_held_segments_ended_holds_and_submitted_orders() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "poster", hold=60.0, outbox=Outbox())
    pool.open(stock=10, segments=3)
    Pool(store, "poster", ttl=0.5, hold=1.0).reserve("short", quantity=2)
    Pool(store, "poster", ttl=0.5, hold=9.0).reserve("soon")
    pool.submit("submitted", quantity=2)
    clock.advance(2.0)
    with pool.grant("granted"):
        (found,) = map(as_json, read(store, "poster"))
    assert (found["held"], found["processes_waiting"], found["outbox"]["orders"]) == ([0], 0, 1)
    assert (found["holds_overdue"], found["holds_due_soon"], found["available"]) == (1, 1, 4)


def test_a_pool_in_shards_is_read_as_one() -> None:
    store = MemoryStore()
    pool = ShardedPool(store, "poster")
    pool.open(stock=10, segments=4, shards=2)
    with pool.grant("granted", quantity=3):
        (found,) = map(as_json, read(store, "poster"))
    assert (len(found["segments"]), len(found["held"]), found["available"], found["reserved"]) == (4, 1, 7, 3)


def test_a_pool_that_is_not_open_is_said_beside_the_others() -> None:
    store = MemoryStore()
    Pool(store, "poster").open(stock=10, segments=3)
    found = [as_json(one) for one in read(store, "nothing", "poster")]
    assert [(one["sku"], one["condition"], one["is_readable"]) for one in found] == [
        ("nothing", "not open", False),
        ("poster", "open", True),
    ]


def test_a_pool_that_is_not_open_is_waited_for_and_similar_names_are_said() -> None:
    store = MemoryStore()
    Pool(store, "Concert").open(stock=10, segments=3)
    typo, other = read(store, "concrt", "zzz")
    assert (typo.similar, other.similar) == (("Concert",), ())
    assert waiting_line(typo) == "not open: waiting for it; did you mean Concert?"
    assert waiting_line(other) == "not open: waiting for it; no pool here has a similar name"
    assert as_json(typo)["similar"] == ["Concert"]


REPORT: Final = op.ProcessReport(
    "shop:1", {"poster": {"busy": 2, "sold_out": 1_204}}, is_worker=True, doing=("take_order poster",), taken=9
)


def test_refusals_and_workers_that_processes_report_are_shown() -> None:
    store = MemoryStore()
    Pool(store, "poster").open(stock=10, segments=3)
    assert as_json(*read(store, "poster"))["refused"] is None
    assert store.execute(op.ReportProcess(REPORT))
    assert store.execute(op.ReportProcess(op.ProcessReport("shop:2", {"poster": {"busy": 1}})))
    found = run_sync(readings_plan(["poster"], {}), store)
    assert as_json(found.pools[0])["refused"] == {"sold_out": 1_204, "busy": 3}
    assert found.workers == (REPORT,)
    lines = screen(found, {}, width=80, height=24).plain.splitlines()
    assert lines[4] == "refused 1,204 sold out, 3 busy"
    assert lines[-3:-1] == ["workers 1 alive, 1 busy, no message yet", "        shop:1  take_order poster"]


def test_up_to_two_hundred_processes_report_and_silent_ones_make_room() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    first, *others = [op.ReportProcess(op.ProcessReport(f"shop:{number}")) for number in range(201)]
    assert [store.execute(one) for one in (first, *others)] == [True] * 200 + [False]
    clock.advance(6.0)
    assert [store.execute(one) for one in others] == [True] * 199 + [False]
    clock.advance(6.0)
    assert [store.execute(others[0]), store.execute(others[-1])] == [True, True]
    assert [one.process for one in store.execute(op.ReadReports())][:2] == ["shop:1", "shop:10"]
    clock.advance(11.0)
    assert store.execute(op.ReadReports()) == ()


def test_a_rate_is_per_second_since_the_reading_before() -> None:
    store = MemoryStore(clock=ManualClock())
    pool = Pool(store, "poster")
    pool.open(stock=10, segments=3)
    (before,) = read(store, "poster")
    pool.reserve("a", quantity=3)
    pool.confirm("a")
    (now,) = read(store, "poster")
    assert pace(before, replace(now, at=before.at + 2.0)) == {"orders": 0.5, "units": 1.5}
    assert pace(None, now) is None


def test_pools_that_were_opened_are_known() -> None:
    store = MemoryStore()
    Pool(store, "poster").open(stock=10, segments=3)
    assert run_sync(known_plan(), store) == ["poster"]


def test_a_metric_has_the_pool_as_its_label() -> None:
    store = MemoryStore()
    pool = Pool(store, 'a "b"\n'.strip())
    pool.open(stock=10, segments=3)
    text = exposition(read(store, pool.sku, "nothing")).decode()
    assert 'segmented_units{sku="a \\"b\\"",state="available"} 10.0\n' in text
    assert 'segmented_pool_readable{sku="nothing"} 0.0\n' in text
    assert "segmented_server_up 0.0\n" in exposition(None).decode()


def test_four_thousand_segments_fit_on_a_line() -> None:
    assert bars((1,) * 4_096, 73) == "█" * 71 + "▇"
    assert bars((0, 1, 50, 100), 73) == " ▁▄█"
    assert bars((100, 50, 0), 73, full=200) == "▄▂ "
    assert widened("█▄ ", 80) == "███ ▄▄▄"
    assert widened("█▄", 3) == "█▄"
    assert marks((False, True, False, False), 2, "#", ".") == "#."


def test_pools_that_do_not_fit_on_the_screen_are_counted() -> None:
    store = MemoryStore()
    skus = [f"sku-{number}" for number in range(5)]
    for sku in skus:
        Pool(store, sku).open(stock=10, segments=64)
    drawn = screen(run_sync(readings_plan(skus, {}), store), {}, width=80, height=24).plain.splitlines()
    assert len(drawn) <= 24
    assert max(map(len, drawn)) <= 80
    assert drawn[-1] == "2 more pools: name the ones to watch. Ctrl-C ends this."


# `segmented pool doctor` names the fault of a pool, and the command to run next.


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
