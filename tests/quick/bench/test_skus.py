"""A cell with several skus: which one an order is for, how many units each has, and the books of each."""

from __future__ import annotations

from dataclasses import replace

from bench.engine.cell import Cell
from bench.engine.checker import broken_promises, check, summed
from bench.engine.record import Checker
from bench.engine.sale import Recorder, split
from bench.engine.skus import choice_of
from bench.strategies.base import GaveUp, Refused, Sold, Verdict
from tests.support.bench.records import checker

CELL = Cell(strategy="global-lock", hold_ms=20, skus=4, zipf=1.0)
SKUS_OF_THE_FIRST = [0, 0, 0, 2, 0, 0, 2, 1, 0, 0, 3, 3]
"""With seed 7."""
CLEAN = Verdict(
    sold=1, available=0, sold_in_sql=None, oversold_in_redis=0, oversold_in_sql=0, refused_wrongly=0, audit="clean"
)


def test_skus_are_chosen_by_rank_and_by_seed_alone() -> None:
    """With 12,000 orders at Zipf 1, the shares 1, 1/2, 1/3 and 1/4 are 5,760, 2,880, 1,920 and 1,440."""
    choice = choice_of(CELL, 7)
    assert [choice.of(number) for number in range(1, 13)] == SKUS_OF_THE_FIRST
    assert choice.shares(12_000, 1) == (5_746, 2_852, 1_944, 1_458)
    assert choice_of(CELL, 8).shares(12_000, 1) == (5_793, 2_890, 1_926, 1_391)
    alike = choice_of(CELL.model_copy(update={"zipf": 0.0}), 7)
    assert alike.shares(12_000, 1) == (3_077, 2_903, 2_994, 3_026)


def test_all_orders_of_a_call_are_for_one_sku_and_get_the_units_that_they_ask_for() -> None:
    choice = choice_of(CELL.model_copy(update={"strategy": "segment-batches", "batch": 3}), 7)
    assert [choice.of(number) for number in range(1, 13)] == [0] * 9 + [2] * 3
    shares = choice.shares(100, 2)
    assert (shares, sum(shares)) == ((52, 6, 24, 18), 100)


def test_the_calls_of_each_sku_are_told_apart() -> None:
    recorder = Recorder()
    answers: list[Sold | Refused | GaveUp] = [*[Sold(0.0)] * 6, Refused(2, 1), GaveUp("no lock"), *[Sold(0.0)] * 4]
    for number, answer in enumerate(answers, start=1):
        recorder.note(0, number, [answer], intended=number, asked=number, done=number + 0.5, quantity=1)
    parts = split(recorder, choice_of(CELL, 7))
    assert [list(part.asked) for part in parts] == [[1, 2, 3, 5, 6, 9, 10], [8], [4, 7], [11, 12]]
    assert [list(part.sold_numbers) for part in parts] == [[1, 2, 3, 5, 6, 9, 10], [], [4], [11, 12]]
    assert [list(part.failed) for part in parts] == [[0] * 7, [1], [0, 0], [0, 0]]
    assert [[one.number for one in part.refusals] for part in parts] == [[], [], [7], []]
    assert [part.judged for part in parts] == [[], [], [Refused(2, 1)], []]


def test_a_sku_that_is_oversold_is_not_balanced_by_one_that_has_units_left() -> None:
    """Order 1 and 2 are for sku 0, which has one unit; the unit of sku 1 is left, and nobody asked for it."""
    recorder = Recorder()
    for number in (1, 2):
        recorder.note(0, number, [Sold(0.0)], intended=0.0, asked=0.0, done=1.0, quantity=1)
    verdicts = [replace(CLEAN, sold=2), replace(CLEAN, sold=0, available=1)]
    parts = split(recorder, choice_of(CELL, 7))[:2]
    books = [
        check(part, verdict, opened=1, stocked=1, quantity=1, cancelled=0)
        for part, verdict in zip(parts, verdicts, strict=True)
    ]
    found = summed(books)
    assert (found.stock, found.sold, found.oversold, found.stranded) == (2, 2, 1, 0)
    assert broken_promises(found, (), failed=0) == ("oversold by 1 unit",)


def test_the_books_of_a_cell_are_the_sums_and_name_the_sku_whose_audit_is_not_clean() -> None:
    one = Checker(
        stock=7, sold=6, sold_in_sql=6, oversold=1, refused_wrongly=2, stranded=3, duplicates=4, lost=5, audit="clean"
    )
    other = one.model_copy(update={"stock": 10, "sold_in_sql": 3, "audit": "drift"})
    assert summed([one, other]) == Checker(
        stock=17, sold=12, sold_in_sql=9, oversold=2, refused_wrongly=4, stranded=6, duplicates=8, lost=10,
        audit="sku 1: drift",
    )  # fmt: skip
    assert summed([checker(), checker()]) == checker(stock=2_000, sold=2_000)
    assert summed([other]) is other
