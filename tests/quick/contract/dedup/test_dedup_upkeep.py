"""Cancelling, freeing and settling: what is done to a record from outside of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.models.dedup import (
    AttemptOutdated,
    Freed,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    RecordState,
    RunBegun,
    RunFinished,
    RunOvertaken,
    StillRunning,
)
from tests.quick.contract.dedup.test_dedup_claims import timeless
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

CLAIMED = KeyClaimed(replay=False)
ON_KEY = ["unique", "latest"]


def where(client: KeyClient) -> str:
    """Name the message whose run it is; of a run of the key, none."""
    return "" if client.point.run_on == "key" else "a"


# --- cancel ---


@pytest.mark.parametrize("point", POINTS)
def test_a_cancelled_message_leaves_its_seat_and_never_begins(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    for _ in range(2):
        assert client.cancel("a") == MessageCancelled()
    assert client.claim("b") == CLAIMED
    assert client.begin("a") == MessageCancelled()
    assert client.claims() == (("k", None),)


@pytest.mark.parametrize("point", POINTS)
def test_a_message_at_work_is_not_cancelled_unless_its_run_is_known_to_be_over(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    answer = client.cancel("a")
    assert answer == StillRunning(answer.free_in_ms)
    assert LONG_MS - 30_000 < answer.free_in_ms <= LONG_MS
    assert client.cancel("a", is_dead=True) == MessageCancelled()
    assert client.finish("a", token) == RunOvertaken()
    assert client.begin("a", "copy") == MessageCancelled()


@pytest.mark.parametrize("point", POINTS)
def test_a_message_that_has_ended_is_not_cancelled(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.run("a")
    assert timeless(client.cancel("a")) == OutcomeKept("a", "value", "1", 0)
    client.run("b")
    assert timeless(client.cancel("a")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_is_cancelled_for_as_long_as_it_may_still_arrive(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a")
    client.abandon("a", next_attempt=1, delay_ms=SHORT_MS, wait_ms=LONG_MS, remember_ms=1)
    assert client.cancel("a", remember_ms=1) == MessageCancelled()
    side.pass_time(SHORT)
    assert client.begin("a", attempt=1) == MessageCancelled()


def test_a_message_put_off_is_cancelled_for_as_long_as_it_may_still_arrive(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", delay_ms=SHORT_MS, wait_ms=LONG_MS)
    client.cancel("a", remember_ms=1)
    side.pass_time(SHORT)
    assert client.begin("a") == MessageCancelled()


# --- free ---


def test_a_freed_key_may_be_claimed_whatever_held_it(side: Side) -> None:
    for state in ("waiting", "running", "done", None):
        client = KeyClient(side)
        if state == "waiting":
            client.claim("a")
        elif state == "running":
            client.token("a")
        elif state == "done":
            client.run("a", keep_ms=LONG_MS)
        assert client.free() == Freed(state, "a" if state else None)
        assert client.free() == Freed(None, None)
        assert client.claim("b") == CLAIMED


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_whose_run_was_freed_is_fenced(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert client.free(where(client)) == Freed("running", "a")
    assert client.finish("a", token) == RunOvertaken()
    assert client.begin("b").fencing_token > token


def test_copies_of_an_ended_message_find_its_outcome_after_the_key_was_freed(side: Side) -> None:
    client = KeyClient(side)
    client.run("a", body="7", keep_ms=LONG_MS)
    client.free()
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert isinstance(client.begin("b"), RunBegun)


def test_a_run_that_has_lapsed_is_nothing_to_free(side: Side) -> None:
    client = KeyClient(side)
    client.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.free() == Freed(None, None)


# --- unknown ---


@pytest.mark.parametrize("point", POINTS)
def test_a_settled_run_has_the_outcome_that_was_said(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", on_lapse="unknown")
    assert client.settle("value", "7", message=where(client)) == NotUnknown()
    client.renew("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.settle("value", "7", keep_ms=LONG_MS, message=where(client)) == RunFinished(replay=False)
    assert client.settle("value", "8", message=where(client)) == NotUnknown()
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert client.finish("a", token) == RunOvertaken()


@pytest.mark.parametrize("point", POINTS)
def test_a_run_settled_as_never_done_may_be_done(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    assert client.settle(None, message=where(client)) == Freed("unknown", "a")
    assert isinstance(client.begin("a", "again"), RunBegun)


def test_settling_leaves_the_outcome_before_to_copies_of_its_message(side: Side) -> None:
    client = KeyClient(side)
    client.run("a", body="7")
    client.token("b", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    client.settle("error", "lost")
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert timeless(client.begin("b", "copy")) == OutcomeKept("b", "error", "lost", 0)


@pytest.mark.parametrize("point", POINTS)
def test_an_unknown_run_is_remembered_until_it_is_settled_however_short_the_memory(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.begin("a", ttl_ms=SHORT_MS, remember_ms=1, on_lapse="unknown")
    side.pass_time(SHORT)
    side.pass_time(SHORT)
    assert client.begin("a", "copy") == KeyHeld("a", "unknown", None)
    assert client.free(where(client)) == Freed("unknown", "a")
    assert isinstance(client.begin("a", "copy"), RunBegun)


# --- look ---


def test_claims_are_listed_first_those_that_end_first_whatever_their_keys_are_called(side: Side) -> None:
    key = "order 5:6%20{7}"
    client = KeyClient(side, "serial", key)
    client.begin("n 1:2", ttl_ms=LONG_MS)
    assert client.claims() == ((key, "n 1:2"),)
    client.begin("m 1:2", ttl_ms=SHORT_MS)
    assert client.claims() == ((key, "m 1:2"), (key, "n 1:2"))
    assert client.claims(limit=1) == ((key, "m 1:2"),)
    client.begin("o", ttl_ms=SHORT_MS, on_lapse="unknown")
    assert client.claims()[-1] == (key, "o"), "it becomes unknown by itself, and does not end"


def test_messages_of_keys_that_look_alike_are_not_mixed_up(side: Side) -> None:
    one, other = KeyClient(side, "serial", "a:b"), KeyClient(side, "serial", "a")
    other.record = type(other.record)(one.record.namespace, "a")
    one.run("c")
    assert isinstance(other.begin("b:c"), RunBegun)
    assert timeless(one.begin("c", "copy")) == OutcomeKept("c", "value", "1", 0)


def test_a_record_tells_all_its_parts(side: Side) -> None:
    client = KeyClient(side, "latest")
    assert client.read() is None
    token = client.token("a")
    client.claim("b")
    client.finish("a", token, body="7", keep_ms=LONG_MS)
    client.token("b", ttl_ms=LONG_MS)
    state = client.read()
    assert state is not None
    assert (state.task, state.seat) == ("task", None)
    assert state.outcome is not None
    assert (state.outcome.message, state.outcome.body) == ("a", "7")
    assert LONG_MS - 30_000 < state.keeps_ms <= LONG_MS
    assert state.run is not None
    assert (state.run.message, state.run.holder_id, state.run.attempt, state.run.is_unknown) == ("b", "b's", 0, False)
    assert 0 <= state.run.begun_ago_ms < 30_000
    assert LONG_MS - 30_000 < state.run.ends_in_ms <= LONG_MS
    client.abandon("b", next_attempt=1)
    assert client.begin("b", "fork") == AttemptOutdated(1)
    assert isinstance(client.read("b"), RecordState)
