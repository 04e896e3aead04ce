"""A run that is given up in doubt, settlements that name their message, and the namespaces of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.dedup.operator import namespaces_plan
from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    Freed,
    KeyHeld,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    Reaped,
    RecordName,
    RunBegun,
    RunFinished,
)
from segmented.once_keys import once_partition
from tests.contract.dedup.dedup_desk import LONG_MS, Desk

if TYPE_CHECKING:
    from segmented.models.dedup import RunOn
    from tests.fixtures.stores import Side

DAY_MS: Final = 86_400_000


class Book:
    """One record."""

    def __init__(self, side: Side, key: str = "k") -> None:
        self.side, self.record = side, RecordName(side.name("effects"), key)

    def begin(self, message: str, holder: str = "h", *, run_on: RunOn = "key", ttl_ms: int = 60_000) -> object:
        return self.side.execute(op.BeginRun(self.record, message, holder, "", "t", ttl_ms, DAY_MS, run_on=run_on))

    def doubt(self, message: str, holder: str = "h", *, run_on: RunOn = "key") -> Released | Lost:
        return self.side.execute(op.DoubtRun(self.record, message, holder, DAY_MS, run_on=run_on))

    def settle(self, of_message: str = "") -> RunFinished | Freed | NotUnknown:
        return self.side.execute(op.SettleRun(self.record, DAY_MS, None, of_message=of_message))


@pytest.fixture
def book(side: Side) -> Book:
    return Book(side)


def test_a_run_in_doubt_is_unknown_at_once_and_a_repeat_of_the_doubt_changes_nothing(book: Book) -> None:
    book.begin("m")
    assert [book.doubt("m"), book.doubt("m")] == [Released(), Released()]
    assert book.begin("n") == KeyHeld("m", "unknown", None)
    (claim,) = book.side.execute(op.ListClaims(book.record.namespace, once_partition(book.record.key), 10))
    assert (claim.key, claim.ends_in_ms) == ("k", None)


def test_a_run_in_doubt_never_lapses_by_itself(book: Book) -> None:
    book.begin("m", ttl_ms=1)
    book.doubt("m")
    book.side.pass_time(0.01)
    assert book.side.execute(op.ReapKey(book.record, 1)) == Reaped("held")
    book.side.pass_time(0.01)
    assert book.begin("n") == KeyHeld("m", "unknown", None)


@pytest.mark.parametrize("point_name", ["until_executed", "until_executing"])
def test_a_retry_of_a_run_in_doubt_lives_and_is_renewed(side: Side, point_name: str) -> None:
    desk = Desk(side, point_name)
    desk.token("m")
    side.execute(op.DoubtRun(desk.record, "m", "m's", LONG_MS, desk.point.run_on))
    assert isinstance(desk.begin("m", "next", attempt=1), RunBegun)
    assert desk.renew("m", "next") == Renewed(LONG_MS)
    held = desk.begin("m", "third", attempt=1)
    assert (held.state, held.message) == ("running", "m")


def test_only_the_holder_puts_its_run_in_doubt(book: Book) -> None:
    assert book.doubt("m") == Lost()
    book.begin("m")
    assert [book.doubt("m", "other"), book.doubt("n")] == [Lost(), Lost()]
    assert isinstance(book.begin("n"), KeyHeld)
    assert book.settle() == NotUnknown()


def test_a_holder_that_learns_after_all_finishes_its_run_in_doubt(book: Book) -> None:
    begun = book.begin("m")
    assert isinstance(begun, RunBegun)
    book.doubt("m")
    finish = op.FinishRun(book.record, "m", "h", begun.fencing_token, "value", "1", DAY_MS, DAY_MS)
    assert book.side.execute(finish) == RunFinished(replay=False)
    assert book.settle() == NotUnknown()


def test_a_run_of_one_message_in_doubt_keeps_out_its_own_copies_alone(book: Book) -> None:
    book.begin("m", run_on="message")
    assert book.doubt("m", run_on="message") == Released()
    assert isinstance(book.begin("m", "copy", run_on="message"), KeyHeld)
    assert isinstance(book.begin("n", "other", run_on="message"), RunBegun)


def test_a_settlement_of_one_message_does_not_settle_another(book: Book) -> None:
    book.begin("m")
    book.doubt("m")
    assert book.settle("earlier") == NotUnknown()
    assert book.settle("m") == Freed("unknown", "m")
    assert isinstance(book.begin("n"), RunBegun)


@pytest.mark.parametrize("key", ["k", "a*b?[c]\\d", "{k}"])
def test_a_namespace_is_found_by_what_is_held_in_it_and_by_a_key_that_it_knows(side: Side, key: str) -> None:
    book = Book(side, key)
    spaces = [f"{book.record.namespace}-{word}" for word in ("plain", "{od:d}%7D")]
    for number, namespace in enumerate(spaces):
        record = RecordName(namespace, key)
        begun = side.execute(op.BeginRun(record, "m", "h", "", "t", 60_000, DAY_MS))
        assert isinstance(begun, RunBegun)
        if number == 0:
            side.execute(op.FinishRun(record, "m", "h", begun.fencing_token, "value", "1", DAY_MS, DAY_MS))
    held, known = side.run(namespaces_plan()), side.run(namespaces_plan(key))
    assert [name for name in held if name in spaces] == spaces[1:]
    assert [name for name in known if name in spaces] == spaces
    assert [name for name in side.run(namespaces_plan("x" + key)) if name in spaces] == []


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("run_on", ["key", "message"])
def test_a_message_that_is_cancelled_leaves_what_is_unknown_unknown(
    book: Book, run_on: RunOn, *, is_dead: bool
) -> None:
    book.side.execute(
        op.BeginRun(book.record, "m", "h", "", "t", 60_000, DAY_MS, run_on=run_on, on_lapse="unknown"),
    )
    if not is_dead:
        book.doubt("m", run_on=run_on)
    cancel = op.CancelMessage(book.record, "m", DAY_MS, run_on, is_dead=is_dead)
    assert [book.side.execute(cancel), book.side.execute(cancel)] == [MessageCancelled(), MessageCancelled()]
    assert book.begin("m", "other", run_on=run_on) == MessageCancelled()
    found = book.side.execute(op.ReadRecord(book.record, "m" if run_on == "message" else ""))
    assert found is not None
    assert found.run is not None
    assert found.run.is_unknown
    (claim,) = book.side.execute(op.ListClaims(book.record.namespace, once_partition(book.record.key), 10))
    assert claim.ends_in_ms is None
    if run_on == "key":
        assert book.begin("n") == KeyHeld("m", "unknown", None)
        assert book.settle() == Freed("unknown", "m")
        assert isinstance(book.begin("n"), RunBegun)


def test_a_message_in_its_window_that_is_settled_gives_its_outcome_until_the_window_ends(side: Side) -> None:
    desk = Desk(side, "until_expired")
    desk.claim("m")
    desk.token("m", on_lapse="unknown")
    side.execute(op.DoubtRun(desk.record, "m", "m's", LONG_MS, "message"))
    assert desk.settle("value", '"x"', message="m") == RunFinished(replay=False)
    found = desk.claim("n")
    assert isinstance(found, OutcomeKept)
    assert (found.message, found.body) == ("m", '"x"')
    state = desk.read()
    assert state is not None
    assert LONG_MS - 60_000 < state.keeps_ms <= LONG_MS
