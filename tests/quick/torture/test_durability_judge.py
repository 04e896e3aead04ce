"""The judge of a trial, fed with journals that were doctored: what is wrong in them is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.torture.durability.journal import Ack, Journal
from tests.torture.judge import Evidence, judge

BEFORE: Final = (Ack(1.0, "a", 1), Ack(1.1, "b", 1))
"""Acknowledged before the fault, which came at 2.0; the server was back at 3.0."""
AFTER: Final = (Ack(4.0, "c", 1), Ack(4.5, "d", 1))
SOUND: Final = Evidence(
    stock=4, fault_at=2.0, back_at=3.0, acks=(*BEFORE, *AFTER), noticed=(), kept={"a", "b"}, rows=None
)
GATED: Final = replace(SOUND, rows={"a": 1, "b": 1, "c": 1, "d": 1})


@pytest.mark.parametrize("evidence", [SOUND, GATED])
def test_a_sale_that_lost_nothing_is_sound(evidence: Evidence) -> None:
    found = judge(evidence)
    assert (found.acknowledged, found.forgotten, found.lost, found.sold_twice, found.unsold) == (2, 0, 0, 0, 0)
    assert (found.noticed_s, found.again_s, found.broken) == (None, 2.0, ())


def test_a_forgotten_order_that_a_process_noticed_is_counted_and_breaks_nothing() -> None:
    found = judge(replace(SOUND, kept={"a"}, noticed=(3.25,)))
    assert (found.forgotten, found.lost, found.noticed_s, found.broken) == (1, 1, 1.25, ())


def test_a_forgotten_order_that_no_process_noticed_is_found() -> None:
    found = judge(replace(SOUND, kept={"a"}, noticed=(1.9,)))  # before the fault: of another loss
    assert (found.forgotten, found.broken) == (1, ("1 order was forgotten, and no process noticed it",))


def test_an_order_that_the_server_forgot_is_not_lost_but_must_be_noticed() -> None:
    found = judge(replace(GATED, kept={"a"}))
    assert (found.forgotten, found.lost) == (1, 0)
    assert found.broken == ("1 order was forgotten, and no process noticed it",)
    assert judge(replace(GATED, kept={"a"}, noticed=(3.1,))).broken == ()


def test_an_acknowledged_order_that_the_database_lacks_is_lost() -> None:
    found = judge(replace(GATED, rows={"a": 1, "c": 1, "d": 1}, noticed=(3.1,), held=1))
    assert (found.lost, found.broken) == (1, ("1 acknowledged order is not in the order database",))


def test_units_that_are_promised_beyond_the_stock_were_sold_twice() -> None:
    found = judge(replace(SOUND, stock=3))
    assert (found.sold_twice, found.broken) == (1, ())
    gated = judge(replace(GATED, stock=3))
    assert (gated.sold_twice, gated.broken) == (1, ("1 unit was sold twice although an order database decides",))


def test_an_order_of_the_database_that_nobody_acknowledged_takes_units_too() -> None:
    assert judge(replace(GATED, rows={**(GATED.rows or {}), "e": 2})).sold_twice == 2


def test_an_order_that_is_acknowledged_twice_is_found() -> None:
    found = judge(replace(SOUND, acks=(*SOUND.acks, Ack(5.0, "a", 1))))
    assert found.broken == ("1 order was acknowledged twice, such as a",)


def test_units_that_a_database_leaves_unsold_are_found_unless_they_are_reserved() -> None:
    found = judge(replace(GATED, stock=6, held=1))
    assert (found.unsold, found.broken) == (1, ("of 6 units, 1 was not sold",))
    assert judge(replace(GATED, stock=6, held=2)).broken == ()


def test_selling_goes_on_with_the_first_order_after_the_loss_was_noticed() -> None:
    assert judge(replace(SOUND, kept=set(), noticed=(4.25, 4.3))).again_s == 2.5
    assert judge(replace(SOUND, acks=BEFORE)).again_s is None


def test_a_journal_is_read_event_by_event() -> None:
    journal = Journal()
    journal.feed(
        [
            "ack 1500000000 0.1 0.1-0 1",
            "failed 1600000000 0.1 StoreUnavailable 1250",
            "noticed 2000000000 0.1 PoolFrozen",
            "left 2500000000 0.1 0.1-1",
            "over 3000000000 0.1",
        ]
    )
    assert journal.acks == [Ack(1.5, "0.1-0", 1)]
    assert (journal.noticed, journal.noticed_last) == ([2.0], {"0.1": 2.0})
    assert (journal.left, journal.over, journal.failures) == (["0.1-1"], {"0.1"}, {"StoreUnavailable": 1})
    assert journal.failed_s_max == 1.25


def test_a_submitted_order_that_no_worker_finished_is_found() -> None:
    found = judge(replace(SOUND, undecided=("e", "d")))
    assert found.broken == ("2 submitted orders were not finished, such as d",)


def test_a_call_that_failed_long_after_its_deadline_is_found() -> None:
    assert judge(replace(SOUND, failed_s_max=20.0)).broken == ()
    assert judge(replace(SOUND, failed_s_max=20.5)).broken == ("a call failed only after 20.5 s",)
