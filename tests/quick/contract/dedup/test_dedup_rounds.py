"""Copies that have to wait, and messages that follow the one they repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.models.dedup import AttemptOutdated, KeyHeld, MessageCancelled, OutcomeKept, RunBegun
from tests.quick.contract.dedup.test_dedup_claims import timeless
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def round_of(answer: KeyHeld) -> int | None:
    """Return the round that the copy is sent with; None when it is dropped."""
    return answer.next_round if answer.goes_round else None


# --- rounds ---


@pytest.mark.parametrize("point", POINTS)
def test_a_copy_goes_round_by_round(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a", "runs")
    for number in range(3):
        assert round_of(client.begin("a", f"h{number}", round_number=number)) == number + 1


def test_a_copy_is_dropped_when_a_newer_one_has_arrived(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.begin("b", "h0", round_number=0)
    client.begin("b", "h1", round_number=1)
    assert round_of(client.begin("b", "h2", round_number=0)) is None
    assert round_of(client.begin("b", "h3", round_number=2)) == 3


def test_a_holder_that_asks_again_after_a_lost_reply_is_told_the_same(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    assert [round_of(client.begin("b", "h0")) for _ in range(3)] == [1, 1, 1]


def test_a_second_delivery_of_a_copy_goes_on_under_its_number(side: Side) -> None:
    """The first delivery may have died."""
    client = KeyClient(side)
    client.token("a")
    assert round_of(client.begin("b", "h0")) == 1
    assert round_of(client.begin("b", "h1")) == 0
    assert round_of(client.begin("b", "h2", round_number=1)) == 2
    assert round_of(client.begin("b", "h1")) is None


def test_a_second_delivery_takes_the_place_of_the_first_that_has_not_come_back(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.begin("b", "h0", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert round_of(client.begin("b", "h1", ttl_ms=SHORT_MS)) == 1
    assert round_of(client.begin("b", "h2", ttl_ms=LONG_MS)) == 0


def test_the_rounds_of_a_retry_are_counted_anew_and_end_those_of_the_attempt_before(side: Side) -> None:
    client = KeyClient(side, "latest")
    client.token("a")
    for number in range(3):
        client.begin("b", f"h{number}", round_number=number)
    assert round_of(client.begin("b", "retry", attempt=1, round_number=0)) == 1
    assert round_of(client.begin("b", "late", attempt=0, round_number=3)) is None


def test_a_copy_that_went_round_begins_when_the_key_is_free(side: Side) -> None:
    client = KeyClient(side)
    token = client.token("a")
    client.begin("b", "h0")
    client.finish("a", token)
    assert isinstance(client.begin("b", "h1", round_number=1), RunBegun)


@pytest.mark.parametrize("point", POINTS)
def test_going_round_does_not_shorten_the_life_of_what_must_be_remembered(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.begin("a", "h0", ttl_ms=SHORT_MS, remember_ms=SHORT_MS, on_lapse="unknown")
    client.begin("a", "copy", ttl_ms=1, remember_ms=1)
    side.pass_time(3 * SHORT)
    assert client.begin("a", "copy") == KeyHeld("a", "unknown", None)


def test_a_retry_is_remembered_while_copies_of_it_go_round(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.abandon("a", next_attempt=1, wait_ms=1)
    side.pass_time(SHORT)
    client.token("b", ttl_ms=SHORT_MS)
    client.begin("a", "copy", attempt=1, ttl_ms=1, remember_ms=1)
    side.pass_time(2 * SHORT)
    assert type(client.begin("a", "fork", attempt=0)).__name__ == "AttemptOutdated"


# --- followers ---


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_waits_for_the_run_of_the_first_and_is_given_its_outcome(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert timeless(client.begin("f", follows="a")) == KeyHeld("a", "running", None, goes_round=True, next_round=1)
    client.finish("a", token, body="7")
    assert timeless(client.begin("f", follows="a")) == OutcomeKept("a", "value", "7", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_is_given_the_outcome_after_others_used_the_key(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.run("a", body="7")
    client.run("b")
    client.run("c")
    assert timeless(client.begin("f", follows="a")) == OutcomeKept("a", "value", "7", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_waits_while_the_first_is_to_be_retried(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a")
    client.abandon("a", next_attempt=1, delay_ms=1_000)
    expected = KeyHeld("a", "waiting", None, attempt=1, goes_round=True, next_round=1)
    assert timeless(client.begin("f", follows="a")) == expected
    token = client.begin("a", attempt=1).fencing_token
    assert timeless(client.begin("f", follows="a", round_number=1)).state == "running"  # type: ignore[attr-defined]  # a KeyHeld
    client.finish("a", token, body="7")
    assert timeless(client.begin("f", follows="a")) == OutcomeKept("a", "value", "7", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_runs_itself_when_the_first_was_cancelled(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    client.cancel("a")
    assert client.begin("a") == MessageCancelled()
    assert isinstance(client.begin("f", follows="a"), RunBegun)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_runs_itself_when_the_first_never_came_died_or_was_never_retried(side: Side, point: str) -> None:
    never, died, unretried = KeyClient(side, point), KeyClient(side, point), KeyClient(side, point)
    never.claim("a", wait_ms=SHORT_MS)
    died.begin("a", ttl_ms=SHORT_MS)
    unretried.begin("a")
    unretried.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    for client in (never, died, unretried):
        assert isinstance(client.begin("f", follows="a"), RunBegun)


def test_a_follower_of_a_message_nobody_knows_runs_itself(side: Side) -> None:
    assert isinstance(KeyClient(side).begin("f", follows="gone"), RunBegun)


def test_a_follower_leaves_its_seat_when_it_is_given_an_outcome(side: Side) -> None:
    client = KeyClient(side, "latest")
    token = client.token("a")
    client.claim("f")
    client.finish("a", token)
    assert isinstance(client.begin("f", follows="a"), OutcomeKept)
    assert client.claims() == ()
    assert client.read().seat is None  # type: ignore[union-attr]  # it has an outcome


# --- herds ---


def test_copies_that_wait_for_one_run_come_back_later_and_apart(side: Side) -> None:
    client = KeyClient(side)
    token = client.token("a")
    waits = [client.begin(f"f{number}", follows="a").wait_ms for number in range(100)]
    assert waits[0] >= 100
    assert waits[-1] >= 100 + 99 * 20 - 1_000, "100 copies come back within more than a second"
    client.finish("a", token)
    client.token("b")
    assert client.begin("f", follows="b").wait_ms < 200, "a new run begins without the herd of the last one"


def test_messages_of_a_serial_key_run_in_the_order_in_which_they_came(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    waits = [client.begin(f"m{number}", at_once=1).wait_ms for number in range(1, 5)]
    assert waits == sorted(waits)
    assert waits[3] > waits[0]
    client.finish("m0", token)
    ahead = client.begin("m2", at_once=1, round_number=1)
    assert (ahead.message, ahead.state, ahead.goes_round) == ("m1", "waiting", True)
    assert client.begin("m5", at_once=1).state == "waiting", "a new message does not overtake those that wait"
    for number in range(1, 6):
        begun = client.begin(f"m{number}", f"h{number}", at_once=1, round_number=2)
        assert isinstance(begun, RunBegun), number
        client.finish(f"m{number}", begun.fencing_token, f"h{number}")


def test_a_message_that_does_not_come_back_is_passed_over_after_a_lease(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    for message in ("lost", "m1"):
        client.begin(message, at_once=1, ttl_ms=SHORT_MS, text="text")
    client.finish("m0", token)
    side.pass_time(1.0)
    assert isinstance(client.begin("m1", at_once=1, round_number=1, ttl_ms=SHORT_MS), RunBegun)


def test_a_cancelled_message_leaves_the_line(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    for message in ("m1", "m2"):
        client.begin(message, at_once=1)
    client.cancel("m1")
    client.finish("m0", token)
    assert isinstance(client.begin("m2", at_once=1, round_number=1), RunBegun)


def test_the_end_of_a_run_names_the_next_message_and_nobody_calls_it_twice(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=2).fencing_token
    other = client.begin("n0", at_once=2).fencing_token
    for number in range(1, 4):
        client.begin(f"m{number}", at_once=2, text=f"text {number}")
    assert client.finish("m0", token).next_text == "text 1"
    assert client.finish("n0", other).next_text == "text 2"
    assert client.begin("m1", "called", at_once=2, round_number=2, text="again").next_text == "text 3"
    assert client.side.execute(op.CallNext(client.record)) == ""


def test_a_copy_that_comes_late_of_a_message_that_was_called_does_not_answer_again(side: Side) -> None:
    """Its chord would count it twice."""
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    client.begin("m1", at_once=1, text="text")
    client.finish("m0", token)
    called = client.begin("m1", "called", at_once=1, round_number=2)
    client.finish("m1", called.fencing_token, "called")
    assert client.begin("m1", "late", at_once=1, round_number=1) == AttemptOutdated(0)
    assert timeless(client.begin("m1", "copy", at_once=1, round_number=2)) == OutcomeKept("m1", "value", "1", 0)
