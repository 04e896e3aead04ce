"""Cancelling, freeing, settling and reaping: what is done to a record from outside of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.models import Renewed
from segmented.models.dedup import (
    AttemptOutdated,
    Claim,
    Freed,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    Reaped,
    RecordState,
    RunBegun,
    RunFinished,
    RunOvertaken,
    StillRunning,
)
from segmented.once_keys import once_partition
from tests.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, Desk
from tests.contract.dedup.test_dedup_claims import timeless
from tests.fixtures.stores import FEW

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

pytestmark = pytest.mark.parametrize("side", FEW, ids=str, indirect=True)
CLAIMED = KeyClaimed(replay=False)
ON_KEY = ["until_executed", "while_executing", "until_and_while_executing"]


def where(desk: Desk) -> str:
    """Name the message whose run it is; of a run of the key, none."""
    return "" if desk.point.run_on == "key" else "a"


# --- cancel ---


@pytest.mark.parametrize("point", POINTS)
def test_a_cancelled_message_leaves_its_seat_and_never_begins(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a")
    for _ in range(2):
        assert desk.cancel("a") == MessageCancelled()
    assert desk.claim("b") == CLAIMED
    assert desk.begin("a") == MessageCancelled()
    assert desk.claims() == (("k", None),)


@pytest.mark.parametrize("point", POINTS)
def test_a_message_at_work_is_not_cancelled_unless_its_run_is_known_to_be_over(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a")
    answer = desk.cancel("a")
    assert answer == StillRunning(answer.free_in_ms)
    assert LONG_MS - 30_000 < answer.free_in_ms <= LONG_MS
    assert desk.cancel("a", is_dead=True) == MessageCancelled()
    assert desk.finish("a", token) == RunOvertaken()
    assert desk.begin("a", "copy") == MessageCancelled()


@pytest.mark.parametrize("point", POINTS)
def test_a_message_that_has_ended_is_not_cancelled(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.run("a")
    assert timeless(desk.cancel("a")) == OutcomeKept("a", "value", "1", 0)
    desk.run("b")
    assert timeless(desk.cancel("a")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_is_cancelled_for_as_long_as_it_may_still_arrive(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.token("a")
    desk.abandon("a", next_attempt=1, delay_ms=SHORT_MS, wait_ms=20 * SHORT_MS, remember_ms=1)
    assert desk.cancel("a", remember_ms=1) == MessageCancelled()
    side.pass_time(SHORT)
    assert desk.begin("a", attempt=1) == MessageCancelled()


def test_a_message_put_off_is_cancelled_for_as_long_as_it_may_still_arrive(side: Side) -> None:
    desk = Desk(side)
    desk.claim("a", delay_ms=SHORT_MS, wait_ms=20 * SHORT_MS)
    desk.cancel("a", remember_ms=1)
    side.pass_time(SHORT)
    assert desk.begin("a") == MessageCancelled()


# --- free ---


def test_a_freed_key_may_be_claimed_whatever_held_it(side: Side) -> None:
    for state in ("waiting", "running", "done", None):
        desk = Desk(side)
        if state == "waiting":
            desk.claim("a")
        elif state == "running":
            desk.token("a")
        elif state == "done":
            desk.run("a", keep_ms=LONG_MS)
        assert desk.free() == Freed(state, "a" if state else None)
        assert desk.free() == Freed(None, None)
        assert desk.claim("b") == CLAIMED


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_whose_run_was_freed_is_fenced(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a")
    assert desk.free(where(desk)) == Freed("running", "a")
    assert desk.finish("a", token) == RunOvertaken()
    assert desk.begin("b").fencing_token > token


def test_copies_of_a_message_that_has_ended_still_find_its_outcome_when_the_key_was_freed(side: Side) -> None:
    desk = Desk(side)
    desk.run("a", body="7", keep_ms=LONG_MS)
    desk.free()
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert isinstance(desk.begin("b"), RunBegun)


def test_a_run_that_has_lapsed_is_nothing_to_free(side: Side) -> None:
    desk = Desk(side)
    desk.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert desk.free() == Freed(None, None)


# --- unknown ---


@pytest.mark.parametrize("point", POINTS)
def test_a_settled_run_has_the_outcome_that_was_said(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    assert desk.settle("value", "7", message=where(desk)) == NotUnknown()
    side.pass_time(SHORT)
    assert desk.settle("value", "7", keep_ms=LONG_MS, message=where(desk)) == RunFinished(replay=False)
    assert desk.settle("value", "8", message=where(desk)) == NotUnknown()
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert desk.finish("a", token) == RunOvertaken()


@pytest.mark.parametrize("point", POINTS)
def test_a_run_settled_as_never_done_may_be_done(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    desk.reap(where(desk))
    assert desk.settle(None, message=where(desk)) == Freed("unknown", "a")
    assert isinstance(desk.begin("a", "again"), RunBegun)


def test_settling_leaves_the_outcome_before_to_copies_of_its_message(side: Side) -> None:
    desk = Desk(side)
    desk.run("a", body="7")
    desk.token("b", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    desk.settle("error", "lost")
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert timeless(desk.begin("b", "copy")) == OutcomeKept("b", "error", "lost", 0)


@pytest.mark.parametrize("point", POINTS)
def test_an_unknown_run_is_remembered_until_it_is_settled_however_short_the_memory(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.begin("a", ttl_ms=SHORT_MS, remember_ms=1, on_lapse="unknown")
    side.pass_time(SHORT)
    desk.reap(where(desk))
    side.pass_time(SHORT)
    assert desk.begin("a", "copy") == KeyHeld("a", "unknown", None)
    assert desk.free(where(desk)) == Freed("unknown", "a")
    assert isinstance(desk.begin("a", "copy"), RunBegun)


# --- reap ---


@pytest.mark.parametrize("point", POINTS)
def test_the_reaper_never_frees_what_lives(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a", wait_ms=LONG_MS)
    assert desk.reap() == Reaped("held")
    assert timeless(desk.claim("b")) == KeyHeld("a", "waiting", None)
    token = desk.token("a")
    desk.claim("b")
    for message in ("", "a"):
        assert desk.reap(message) == Reaped("held" if message == where(desk) or desk.read(message) else "freed")
    assert desk.renew("a") == Renewed(LONG_MS)
    assert desk.finish("a", token) == RunFinished(replay=False)


@pytest.mark.parametrize("point", POINTS)
def test_the_reaper_frees_the_run_of_a_dead_holder(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a", ttl_ms=SHORT_MS)
    assert desk.reap(where(desk)) == Reaped("held")
    side.pass_time(SHORT)
    assert (desk.key, where(desk) or None) in desk.claims(only_lapsed=True)
    assert desk.reap(where(desk)) == Reaped("freed")
    assert desk.reap(where(desk)) == Reaped("held")
    assert (desk.key, where(desk) or None) not in desk.claims()
    assert desk.finish("a", token) == RunOvertaken()


@pytest.mark.parametrize("point", POINTS)
def test_the_reaper_tells_that_a_run_became_unknown_and_then_leaves_it(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    assert desk.reap(where(desk)) == Reaped("unknown")
    assert desk.reap(where(desk)) == Reaped("held")
    assert (desk.key, where(desk) or None) not in desk.claims(only_lapsed=True)
    listing = op.ListClaims(desk.record.namespace, once_partition("k"), 10)
    assert Claim("k", where(desk) or None, None) in side.execute(listing)


def test_the_reaper_frees_a_seat_beside_a_living_run(side: Side) -> None:
    desk = Desk(side, "until_and_while_executing")
    desk.token("a")
    desk.claim("b", wait_ms=SHORT_MS)
    assert desk.claims(only_lapsed=True) == ()
    side.pass_time(SHORT)
    assert desk.claims(only_lapsed=True) == (("k", None),)
    assert desk.reap() == Reaped("freed")
    assert desk.claims() == (("k", None),)
    assert desk.renew("a") == Renewed(LONG_MS)


# --- look ---


def test_claims_are_listed_first_those_that_end_first_whatever_their_keys_are_called(side: Side) -> None:
    key = "order 5:6%20{7}"
    desk = Desk(side, "until_executing", key)
    desk.claim("m 1:2", wait_ms=LONG_MS)
    desk.begin("n 1:2", ttl_ms=LONG_MS)
    assert desk.claims() == ((key, None),)
    desk.begin("m 1:2", ttl_ms=SHORT_MS)
    desk.claim("o")
    assert desk.claims() == ((key, "m 1:2"), (key, None))
    assert desk.claims(limit=1) == ((key, "m 1:2"),)
    side.pass_time(SHORT)
    assert desk.claims(only_lapsed=True) == ((key, "m 1:2"),)
    assert desk.reap("m 1:2") == Reaped("freed")
    assert desk.claims() == ((key, None),)


def test_messages_of_keys_that_look_alike_are_not_mixed_up(side: Side) -> None:
    one, other = Desk(side, "until_executing", "a:b"), Desk(side, "until_executing", "a")
    other.record = type(other.record)(one.record.namespace, "a")
    one.run("c")
    assert isinstance(other.begin("b:c"), RunBegun)
    assert timeless(one.begin("c", "copy")) == OutcomeKept("c", "value", "1", 0)


def test_a_record_tells_all_its_parts(side: Side) -> None:
    desk = Desk(side, "until_and_while_executing")
    assert desk.read() is None
    token = desk.token("a")
    desk.claim("b")
    desk.finish("a", token, body="7", keep_ms=LONG_MS)
    desk.token("b", ttl_ms=LONG_MS)
    state = desk.read()
    assert state is not None
    assert (state.task, state.seat) == ("task", None)
    assert state.outcome is not None
    assert (state.outcome.message, state.outcome.body) == ("a", "7")
    assert LONG_MS - 30_000 < state.keeps_ms <= LONG_MS
    assert state.run is not None
    assert (state.run.message, state.run.holder_id, state.run.attempt, state.run.is_unknown) == ("b", "b's", 0, False)
    assert 0 <= state.run.begun_ago_ms < 30_000
    assert LONG_MS - 30_000 < state.run.ends_in_ms <= LONG_MS
    desk.abandon("b", next_attempt=1)
    assert desk.begin("b", "fork") == AttemptOutdated(1)
    assert isinstance(desk.read("b"), RecordState)
