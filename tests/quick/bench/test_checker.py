"""The checker of a run, on sales that are made up: each way to break a promise, and none that is not broken."""

from __future__ import annotations

from dataclasses import replace

from bench.engine.checker import broken_promises, check, surely_wrong
from bench.engine.sale import Recorder
from bench.strategies.base import GaveUp, Refused, Sold, Verdict

CLEAN = Verdict(
    sold=2,
    available=0,
    sold_in_sql=None,
    oversold_in_redis=0,
    oversold_in_sql=0,
    refused_wrongly=0,
    audit="clean",
    sold_ids=frozenset({"1", "2"}),
)
SOLD, REFUSED, GAVE_UP = Sold(0.0), Refused(0, 1), GaveUp("no lock")


def seen(*calls: tuple[float, float, Sold | Refused | GaveUp]) -> Recorder:
    """Return what buyers saw: (asked, done, answer), numbered from 1."""
    recorder = Recorder()
    for number, (asked, done, answer) in enumerate(calls, start=1):
        recorder.note(0, number, [answer], intended=asked, asked=asked, done=done, quantity=1)
    return recorder


WHOLE = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, REFUSED))


def test_a_whole_sale_breaks_nothing() -> None:
    found = check(WHOLE, CLEAN, opened=2, stocked=2, quantity=1, cancelled=0)
    assert (found.sold, found.oversold, found.refused_wrongly, found.stranded) == (2, 0, 0, 0)
    assert (found.duplicates, found.lost) == (0, 0)
    assert broken_promises(found, (), failed=0) == ()


def test_a_refusal_is_wrong_if_nobody_could_have_had_the_units_by_its_answer() -> None:
    for asked, done, wrong in (
        (0.0, 0.5, 1),  # answered before anybody else had asked
        (0.0, 1.0, 1),  # answered when the last one asked: that one cannot have been before
        (0.0, 1.5, 0),  # somebody who asked before the answer got the unit
        (2.0, 3.0, 0),
    ):
        assert surely_wrong(seen((asked, done, REFUSED), (1.0, 2.0, SOLD)), 1, 1) == wrong


def test_an_order_that_failed_may_have_had_units() -> None:
    refused = (1.0, 2.0, REFUSED)
    assert surely_wrong(seen((0.0, 1.0, GAVE_UP), refused), 1, 1) == 0
    assert surely_wrong(seen((0.0, 1.0, GAVE_UP), refused), 2, 1) == 1
    assert surely_wrong(seen((0.0, 1.0, REFUSED), refused), 1, 1) == 2


def test_units_are_counted_by_the_size_of_orders() -> None:
    recorder = Recorder()
    recorder.note(0, 1, [SOLD, SOLD], intended=0.0, asked=0.0, done=1.0, quantity=3)
    recorder.note(0, 3, [REFUSED], intended=1.0, asked=1.0, done=2.0, quantity=3)
    assert (surely_wrong(recorder, 8, 3), surely_wrong(recorder, 9, 3)) == (0, 1)


def test_what_the_servers_say_breaks_a_promise() -> None:
    cases: list[tuple[Verdict, str, int, str]] = [
        (replace(CLEAN, oversold_in_redis=3), "oversold", 3, "oversold by 3 units"),
        (replace(CLEAN, oversold_in_sql=4), "oversold", 4, "oversold by 4 units"),
        (replace(CLEAN, refused_wrongly=1), "refused_wrongly", 1, "orders refused while units were free: 1"),
        (replace(CLEAN, sold=1), "stranded", 1, "units that no order can get: 1"),
        (replace(CLEAN, sold=1, available=1), "stranded", 1, "units that no order can get: 1"),
        (replace(CLEAN, duplicates=2), "duplicates", 2, "orders with more than one effect: 2"),
        (replace(CLEAN, sold_ids=frozenset("1")), "lost", 1, "orders acknowledged and not known to the servers: 1"),
        (replace(CLEAN, sold_in_sql=1), "sold_in_sql", 1, "the pool has 2 units sold and the order database 1"),
    ]
    for verdict, field, count, sentence in cases:
        found = check(WHOLE, verdict, opened=2, stocked=2, quantity=1, cancelled=0)
        assert getattr(found, field) == count
        assert broken_promises(found, (), failed=0) == (sentence,)


def test_what_the_buyers_noted_breaks_a_promise_whatever_the_servers_say() -> None:
    found = check(WHOLE, CLEAN, opened=1, stocked=1, quantity=1, cancelled=0)
    assert found.oversold == 1
    recorder = seen((0.0, 1.0, SOLD))
    recorder.note(0, 1, [SOLD], intended=1.0, asked=1.0, done=2.0, quantity=1)
    twice = check(recorder, replace(CLEAN, sold_ids=frozenset("1")), opened=2, stocked=2, quantity=1, cancelled=0)
    assert (twice.duplicates, twice.lost) == (1, 0)


def test_units_left_are_stranded_only_if_a_buyer_that_could_have_them_was_refused() -> None:
    left = replace(CLEAN, sold=1, available=1, sold_ids=frozenset("1"))
    unsold = seen((0.0, 1.0, SOLD))
    assert check(unsold, left, opened=2, stocked=2, quantity=1, cancelled=0).stranded == 0
    refused = seen((0.0, 1.0, SOLD), (1.0, 2.0, REFUSED))
    assert check(refused, left, opened=2, stocked=2, quantity=1, cancelled=0).stranded == 1
    assert check(refused, left, opened=2, stocked=2, quantity=2, cancelled=0).stranded == 0


def test_units_that_were_cancelled_are_neither_oversold_nor_lost() -> None:
    gone = replace(CLEAN, sold=1, sold_ids=frozenset("1"))
    found = check(WHOLE, gone, opened=1, stocked=1, quantity=1, cancelled=1)
    assert (found.oversold, found.lost) == (0, 0)


def test_a_sold_order_that_is_gone_is_lost_however_many_others_were_cancelled() -> None:
    """One of three was cancelled, and the servers know one: the third was acknowledged, and lost."""
    recorder = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, SOLD))
    known = replace(CLEAN, sold=1, available=2, sold_ids=frozenset("1"))
    assert check(recorder, known, opened=3, stocked=3, quantity=1, cancelled=1).lost == 1
    assert check(recorder, known, opened=3, stocked=3, quantity=1, cancelled=2).lost == 0


def test_units_sold_to_an_order_that_was_told_otherwise_are_stranded() -> None:
    """The servers say that order 3 is sold. Its buyer was told "sold out"; that no lock was free; nothing at all."""
    known = replace(CLEAN, sold=3, sold_ids=frozenset("123"))
    refused = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, REFUSED))
    assert check(refused, known, opened=3, stocked=3, quantity=1, cancelled=0).stranded == 1
    failed = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD), (2.0, 3.0, GAVE_UP))
    assert check(failed, known, opened=3, stocked=3, quantity=1, cancelled=0).stranded == 0
    cut_off = seen((0.0, 1.0, SOLD), (1.0, 2.0, SOLD))
    assert check(cut_off, known, opened=3, stocked=3, quantity=1, cancelled=0, unfinished=1).stranded == 0


def test_an_unclean_audit_and_orders_without_an_answer_break_a_promise() -> None:
    found = check(WHOLE, replace(CLEAN, audit="drift"), opened=2, stocked=2, quantity=1, cancelled=0)
    assert broken_promises(found, ("no lock",), failed=2) == (
        "the audit is not clean: drift",
        "orders without an answer: 2, the first: no lock",
    )
    assert broken_promises(found, (), failed=1)[1] == "orders without an answer: 1, the first: cut short"
