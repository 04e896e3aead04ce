"""Copies that have to wait, and messages that follow the one they repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.models.dedup import KeyHeld, MessageCancelled, OutcomeKept, RunBegun
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
