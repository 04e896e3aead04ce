"""The judges of the tortures of orders and of durability."""

import io
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from rich.console import Console

from segmented.cli.main import run
from segmented.models import LedgerEntry
from segmented.models.pools import EntryKind
from tests.torture.durability.journal import Ack
from tests.torture.event_log import order_id
from tests.torture.judge import Evidence, OrderChecker, OrdersVerdict, judge
from tests.torture.orders.messages import MessageTracker, Recovery, WorkerState
from tests.torture.orders.mixed import MUST_BE_ZERO, judge_order
from tests.torture.orders.mixed_buyer import kept_units, kind_of, units_of
from tests.torture.orders.options import KillSchedule, OrdersOptions, quantity_of
from tests.torture.orders.run import report_of
from tests.torture.report import Report

Cases = dict[str, tuple[OrdersVerdict, dict[str, int]]]

NOTHING: Final = {"lost": 0, "doubled": 0, "oversold": 0, "refused_wrongly": 0, "uncalled": 0}
ANSWERS: Final = ("a 1 2", "a 2 1", "a 3 2", "f 4 2")
"""Five units: four orders, of which the last finds none."""


def entry(sequence: int, kind: EntryKind, number: int | None, quantity: int) -> LedgerEntry:
    name = None if number is None else order_id(number)
    return LedgerEntry(1, sequence, kind, 1_000 * sequence, name, quantity, (), 0, None)


SOUND: Final = (
    entry(1, "opened", None, 5),
    entry(2, "reserved", 1, 2),
    entry(2, "reserved", 2, 1),
    entry(2, "reserved", 3, 2),
    entry(3, "confirmed", 1, 2),
    entry(4, "confirmed", 2, 1),
    entry(4, "confirmed", 3, 2),
)
ROWS: Final = (("o-1", "confirmed", 2), ("o-2", "confirmed", 1), ("o-3", "confirmed", 2))


def counted(
    ledger: Sequence[LedgerEntry] = SOUND,
    *,
    answers: Sequence[str] = ANSWERS,
    rows: Sequence[tuple[str, str, int]] | None = None,
    stock: int = 5,
) -> OrdersVerdict:
    checker = OrderChecker(4, stock, has_database=rows is not None)
    for line in answers:
        checker.answer(line)
    checker.ledger(ledger)
    checker.rows(rows or ())
    return checker.verdict()


ALL: Final = ("a 1 2", "a 2 1", "a 3 2", "a 4 2")
REFUSED: Final = entry(5, "refused", 4, 2)
TAKEN_BACK: Final = (entry(2, "reserved", 4, 2), entry(2, "expired", 4, 2))
WITHOUT_2: Final = [one for one in SOUND if one.order_id != "o-2"]
UNRESERVED: Final = [one for one in SOUND if (one.kind, one.order_id) != ("reserved", "o-2")]
FREE_WHEN_REFUSED: Final = [
    SOUND[0], entry(2, "reserved", 3, 2), entry(3, "expired", 3, 2), entry(4, "refused", 4, 5), *SOUND[1:],
]  # fmt: skip
LOST: Final[Cases] = {
    "accepted, without an end": (counted(SOUND[:-1]), {"lost": 1}),
    "unknown to pool and ledger": (counted(WITHOUT_2), {"lost": 1}),
    "accepted and lapsed": (counted([*SOUND[:-1], replace(SOUND[-1], kind="expired")]), {"lost": 1}),
    "accepted and cancelled": (counted([*SOUND[:-1], replace(SOUND[-1], kind="cancelled")]), {"lost": 1}),
    "not in the database": (counted(rows=ROWS[:2]), {"lost": 1}),
    "only in the database": (counted(SOUND[:-1], rows=ROWS), {"lost": 1}),
}
DOUBLED: Final[Cases] = {
    "confirmed twice": (counted([*SOUND, entry(5, "confirmed", 2, 1)], stock=6), {"doubled": 1}),
    "reserved twice": (counted([*SOUND, entry(5, "reserved", 2, 1)], stock=6), {"doubled": 1}),
    "two rows": (counted(rows=[*ROWS, ROWS[1]], stock=6), {"doubled": 1}),
    "refused and sold": (counted([*SOUND, entry(5, "refused", 2, 1)]), {"doubled": 1}),
    "refused twice": (counted([*SOUND, REFUSED, replace(REFUSED, sequence=6)], answers=ALL), {"doubled": 1}),
    "refused and held": (counted([*SOUND, REFUSED, entry(6, "reserved", 4, 2)], answers=ALL, stock=7), {"doubled": 1}),
    "refused, with a row": (
        counted([*SOUND, REFUSED], answers=ALL, rows=[*ROWS, ("o-4", "confirmed", 2)], stock=7),
        {"doubled": 1, "lost": 1},
    ),
}
OVERSOLD: Final[Cases] = {
    "one order more than the stock": (
        counted([*SOUND, entry(5, "reserved", 4, 2), entry(6, "confirmed", 4, 2)], answers=ALL),
        {"oversold": 2},
    ),
    "confirmed without a reservation": (counted([*SOUND, entry(5, "confirmed", 2, 1)]), {"doubled": 1, "oversold": 1}),
    "held beyond the stock for a while": (
        counted([SOUND[0], SOUND[1], SOUND[3], *TAKEN_BACK, SOUND[2], *SOUND[4:]]),
        {"oversold": 1},
    ),
    "only by the database": (counted(rows=[*ROWS, ("o-9", "confirmed", 3)]), {"oversold": 3, "uncalled": 1}),
}
REFUSED_WRONGLY: Final[Cases] = {
    "at the door, while units were free": (counted(stock=7), {"refused_wrongly": 1}),
    "by a worker, while units were free": (
        counted([*SOUND[:2], entry(2, "refused", 4, 2), *SOUND[2:]], answers=ALL),
        {"refused_wrongly": 1},
    ),
    "by a worker, after units came back": (
        counted(FREE_WHEN_REFUSED, answers=ALL),
        {"refused_wrongly": 1, "uncalled": 1},
    ),
}
UNCALLED: Final[Cases] = {
    "given back before it was taken": (counted([SOUND[0], entry(2, "expired", 1, 2), *SOUND[1:]]), {"uncalled": 2}),
    "sold without a reservation": (counted(UNRESERVED), {"uncalled": 1}),
    "a refusal that nobody asked for": (counted([*SOUND, REFUSED], answers=ANSWERS[:3]), {"uncalled": 1}),
    "a row of other units": (counted(rows=[*ROWS[:2], ("o-3", "confirmed", 1)]), {"uncalled": 1}),
    "refused at the door and held": (
        counted([*SOUND, entry(5, "reserved", 4, 2)], stock=6),
        {"oversold": 1, "uncalled": 1},
    ),
    "a row of another sale": (counted(rows=[*ROWS, ("of-another-sale", "confirmed", 1)], stock=6), {"uncalled": 1}),
    "other units than were promised": (counted([*SOUND[:-1], replace(SOUND[-1], quantity=1)]), {"uncalled": 1}),
}
SOUND_TOO: Final[Cases] = {
    "refused once": (counted([*SOUND, REFUSED], answers=ALL), {}),
    "given back and taken by another": (counted([SOUND[0], *TAKEN_BACK, *SOUND[1:]]), {}),
    "given back and taken again": (
        counted([SOUND[0], entry(2, "reserved", 1, 2), entry(2, "expired", 1, 2), *SOUND[1:]]),
        {},
    ),
    "a void row": (counted(rows=[*ROWS, ("o-4", "void", 2)]), {}),
}


@pytest.mark.parametrize("rows", [None, ROWS])
def test_a_sound_log_and_ledger_add_up(rows: Sequence[tuple[str, str, int]] | None) -> None:
    verdict = counted(rows=rows)
    assert (verdict.accepted, verdict.confirmed, verdict.refused) == (3, 3, 1)
    assert (verdict.units_confirmed, verdict.units_reserved, verdict.units_available) == (5, 0, 0)
    assert verdict.counts == NOTHING
    assert verdict.broken == []


@pytest.mark.parametrize("cases", [LOST, DOUBLED, OVERSOLD, REFUSED_WRONGLY, UNCALLED, SOUND_TOO])
def test_each_way_to_break_a_promise_is_counted_and_no_other(cases: Cases) -> None:
    found = {name: verdict.counts for name, (verdict, _) in cases.items()}
    assert found == {name: {**NOTHING, **broken} for name, (_, broken) in cases.items()}


def test_what_a_killed_worker_had_is_recovered_from_the_moment_of_its_death() -> None:
    messages = MessageTracker(4)
    messages.feed(0, ["p 10 A 1 2", "p 20 B 3", "p 30 C 4"])
    messages.feed(1, ["w 5", "r 40 A", "b 41 A 1 2", "s 1", "r 42 B"])
    messages.kill(1, 1_000_000_000)
    messages.feed(2, ["p 50 D 1 2 3", "r 60 D", "b 61 D 1 2 3", "s 1", "s 2", "s 3", "d 70 D", "b 71 C 4", "s 4"])
    assert messages.lost([]) == 0
    # order 1 was decided before the kill, by the server's clock, which is 500 us ahead of ours
    found = messages.recovery([0, 1_000_499, 3_000_500, 5_000_500, 9_000_500], 500)
    assert (found.orders, found.p50_s, found.max_s, found.orders_of_several, found.of_one_max_s) == (
        2,
        4.0,
        4.0,
        0,
        4.0,
    )
    assert (messages.worked, messages.works_repeated) == (5, 1)
    assert (messages.published, messages.published_again) == (4, 3)
    assert messages.duplicates_absorbed == 1  # 1 and 2 were told twice, and 1 alone was worked for twice


def results_of(verdict: OrdersVerdict, *, kills: int = 40) -> Report:
    counts = dict.fromkeys(
        ("messages_published", "messages_lost_by_the_broker", "orders_published_again", "duplicates_absorbed"), 0
    )
    counted = {"kills": kills, **counts, "steps_repeated": 0, "seconds": 30.0, "orders_per_s": 1.0}
    conditions = {"versions": {}, "cores": 2, "cpu_model": "any", "commit": None}
    return report_of(OrdersOptions(), verdict, [], counted, Recovery(), conditions)


def test_a_run_that_broke_a_promise_shows_no_other_figures() -> None:
    verdict = OrdersVerdict(accepted=20_000, confirmed=19_000)
    verdict.lost.add("o-17")
    found, said = results_of(verdict), io.StringIO()
    found.show(Console(file=said))
    assert said.getvalue().splitlines()[5] == "BROKEN: lost (accepted, not decided): 1, must be 0 (o-17)"
    assert (found.is_kept, found.as_json()["figures"]) == (False, {})
    few = results_of(OrdersVerdict(accepted=20_000, confirmed=20_000), kills=39)
    assert few.broken == ["only 39 of 40 workers could be killed"]


BEFORE: Final = (Ack(1.0, "a", 1), Ack(1.1, "b", 1))
"""Acknowledged before the fault, which came at 2.0; the server was back at 3.0."""
AFTER: Final = (Ack(4.0, "c", 1), Ack(4.5, "d", 1))
SOUND_SALE: Final = Evidence(
    stock=4, fault_at=2.0, back_at=3.0, acks=(*BEFORE, *AFTER), noticed=(), kept={"a", "b"}, rows=None
)
GATED: Final = replace(SOUND_SALE, rows={"a": 1, "b": 1, "c": 1, "d": 1})


@pytest.mark.parametrize("evidence", [SOUND_SALE, GATED])
def test_a_sale_that_lost_nothing_is_sound(evidence: Evidence) -> None:
    found = judge(evidence)
    assert (found.acknowledged, found.forgotten, found.lost, found.sold_twice, found.unsold) == (2, 0, 0, 0, 0)
    assert (found.noticed_s, found.again_s, found.broken) == (None, 2.0, ())


def test_a_forgotten_order_that_no_process_noticed_is_found() -> None:
    found = judge(replace(SOUND_SALE, kept={"a"}, noticed=(1.9,)))  # before the fault: of another loss
    assert (found.forgotten, found.broken) == (1, ("1 order was forgotten, and no process noticed it",))


def test_an_acknowledged_order_that_the_database_lacks_is_lost() -> None:
    found = judge(replace(GATED, rows={"a": 1, "c": 1, "d": 1}, noticed=(3.1,), held=1))
    assert (found.lost, found.broken) == (1, ("1 acknowledged order is not in the order database",))


def test_units_that_are_promised_beyond_the_stock_were_sold_twice() -> None:
    found = judge(replace(SOUND_SALE, stock=3))
    assert (found.sold_twice, found.broken) == (1, ())
    gated = judge(replace(GATED, stock=3))
    assert (gated.sold_twice, gated.broken) == (1, ("1 unit was sold twice although an order database decides",))


def test_orders_of_a_lost_message_count_from_the_kill_after_what_came_before_it() -> None:
    messages = MessageTracker(3)
    messages.feed(0, ["p 10 A 1", "p 20 B 2", "p 30 C 3"])
    messages.feed(1, [])
    messages.kill(1, 15)
    messages.feed(2, ["r 1000 A", "b 1001 A 1", "d 1002 A"])
    messages.kill(2, 3_000_000_000)  # it had popped B, and not noted it
    messages.feed(3, ["r 4000000000 C", "b 4000000001 C 3"])
    assert messages.lost([]) == 1
    found = messages.recovery([0, 1, 4_500_000, 4_000_000], 0)
    assert (found.orders, found.max_s) == (1, 1.5)


def test_a_lost_message_is_hit_by_the_first_kill_after_all_before_it_were_taken() -> None:
    messages = MessageTracker(3)
    messages.feed(0, ["p 10 A 1", "p 15 B 2", "p 20 C 3"])
    messages.feed(1, ["r 1000 B", "b 1001 B 2", "d 1002 B"])
    messages.kill(1, 2_000)  # A, which came before C, was still queued
    messages.feed(2, ["r 3000 A", "b 3001 A 1", "d 3002 A"])
    messages.kill(2, 4_000_000_000)
    assert messages.lost([]) == 1
    found = messages.recovery([0, 1, 1, 5_500_000], 0)
    assert (found.orders, found.max_s) == (1, 1.5)


def test_a_busy_worker_is_killed_a_moment_after_enough_orders_and_no_other() -> None:
    schedule = KillSchedule(2, 1_000, random.Random(1))  # one each 300 orders
    workers = {1: WorkerState(is_ready=True), 2: WorkerState(is_ready=True, begun={"A"}), 3: WorkerState(begun={"B"})}
    assert schedule.choose(299, 0.0, workers) is None
    assert schedule.choose(300, 1.0, workers) is None
    assert schedule.choose(400, 1.04, workers) is None
    assert schedule.choose(400, 1.2, {1: workers[1], 3: workers[3]}) is None  # nobody is ready and busy
    assert schedule.choose(430, 1.3, workers) == 2
    assert schedule.choose(599, 2.0, workers) is None
    assert schedule.choose(600, 3.0, workers) is None
    assert schedule.choose(600, 3.2, workers) == 2
    assert schedule.is_over
    assert schedule.choose(1_000, 9.0, workers) is None


def test_quick_is_a_tenth_of_orders_and_kills_and_the_stock_is_too_small_for_all() -> None:
    options = OrdersOptions(is_quick=True)
    assert (options.order_count, options.kill_count) == (2_000, 4)
    asked = [quantity_of(number, 1) for number in range(1, 2_001)]
    assert set(asked) == {1, 2, 3}
    assert options.stock() == sum(asked) * 975 // 1_000


def test_bad_input_of_the_command_is_one_sentence_and_nothing_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in (
        (["orders", "--effect", "mysql"], "--effect 'mysql' is not one of 'redis', 'postgresql'"),
        (["locks", "--seconds", "nan"], "--seconds nan must be between 1 and 86,400"),
    ):
        assert run(["torture", *words]) == 2
        assert capsys.readouterr().err == f"segmented: {sentence}\n"


# The judge of `torture orders --mix` finds each kind of wrong order.


PAID, CHANGED, RETURNED, SUBMITTED, DECLINED = 3, 6, 8, 1, 21


@pytest.mark.parametrize(
    ("number", "answer", "row", "back", "invoices", "wrong"),
    [
        (PAID, "sold", ("confirmed", kept_units(PAID)), 0, 1, []),
        (PAID, "sold", None, 0, 0, ["lost"]),
        (PAID, "sold", ("void", 1), 0, 1, ["lost", "invoiced_unsold"]),
        (PAID, "sold", ("confirmed", kept_units(PAID)), 0, 2, ["invoices"]),
        (PAID, "sold", ("confirmed", kept_units(PAID)), 0, 0, ["invoices"]),
        (PAID, "refunded", ("void", 1), 0, 0, []),
        (PAID, "refunded", ("confirmed", kept_units(PAID)), 0, 1, ["wrongly_sold"]),
        (PAID, "refunded", ("void", 1), 0, 1, ["invoiced_unsold"]),
        (PAID, "refused", None, 0, 0, []),
        (PAID, "nothing", ("confirmed", kept_units(PAID)), 0, 1, ["wrongly_sold"]),
        (CHANGED, "sold", ("confirmed", kept_units(CHANGED)), 0, 1, []),
        (CHANGED, "sold", ("confirmed", units_of(CHANGED)), 0, 1, ["units"]),
        (RETURNED, "sold", ("confirmed", kept_units(RETURNED)), 1, 1, []),
        (RETURNED, "sold", ("confirmed", kept_units(RETURNED)), 0, 1, ["units"]),
        (RETURNED, "sold", ("confirmed", kept_units(RETURNED)), 2, 1, ["units"]),
        (SUBMITTED, "accepted", ("confirmed", kept_units(SUBMITTED)), 0, 0, []),
        (SUBMITTED, "accepted", ("void", 1), 0, 0, ["lost"]),
        (DECLINED, "accepted", ("void", 1), 0, 0, []),
        (DECLINED, "accepted", ("confirmed", kept_units(DECLINED)), 0, 0, ["wrongly_sold"]),
    ],
)
def test_what_is_wrong_with_an_order_is_counted(
    number: int, answer: str, row: tuple[str, int] | None, back: int, invoices: int, wrong: list[str]
) -> None:
    found: dict[str, list[str]] = {name: [] for name in MUST_BE_ZERO}
    judge_order(found, ("a", f"o-{number}"), answer, row, back=back, invoices=invoices)
    assert [name for name, wrongs in found.items() if wrongs] == wrong


def test_of_ten_orders_three_are_submitted_and_three_are_paid() -> None:
    kinds = [kind_of(number) for number in range(10)]
    assert [kinds.count(kind) for kind in ("submitted", "paid", "changed", "returned", "late", "abandoned")] == [
        3,
        3,
        1,
        1,
        1,
        1,
    ]
