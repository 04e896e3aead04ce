"""Execution: who may run a message, how a run ends, and what copies find afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    AttemptOutdated,
    KeyClaimed,
    KeyHeld,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunFinished,
    RunOvertaken,
)
from tests.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, Desk
from tests.contract.dedup.test_dedup_claims import timeless
from tests.fixtures.stores import FEW

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

pytestmark = pytest.mark.parametrize("side", FEW, ids=str, indirect=True)
CLAIMED = KeyClaimed(replay=False)
ON_KEY = ["until_executed", "while_executing", "until_and_while_executing"]
ON_MESSAGE = ["until_executing", "until_expired"]


def running(message: str, attempt: int = 0) -> KeyHeld:
    """What the first copy of a message is told that finds this one running."""
    return KeyHeld(message, "running", None, attempt, goes_round=True, next_round=1)


# --- one run ---


@pytest.mark.parametrize("point", POINTS)
def test_a_message_is_run_by_one_holder_at_a_time(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a")
    assert isinstance(desk.begin("a", "h1"), RunBegun)
    assert timeless(desk.begin("a", "h2")) == running("a")


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_that_repeats_its_beginning_after_a_lost_reply_has_the_same_token(side: Side, point: str) -> None:
    desk = Desk(side, point)
    first = desk.begin("a", "h")
    assert desk.begin("a", "h") == replace(first, replay=True)


@pytest.mark.parametrize("point", ON_KEY)
def test_two_messages_of_a_key_never_run_at_once(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a")
    assert timeless(desk.begin("b")) == running("a")
    desk.finish("a", token)
    assert desk.begin("b").fencing_token > token


@pytest.mark.parametrize("point", ON_MESSAGE)
def test_messages_of_a_key_run_side_by_side_where_only_copies_are_kept_out(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a", wait_ms=SHORT_MS)
    token = desk.token("a")
    side.pass_time(SHORT)
    desk.claim("b")
    assert desk.begin("b").fencing_token > token


def test_a_message_with_another_payload_is_refused_by_a_run_a_seat_and_a_kept_outcome(side: Side) -> None:
    desk = Desk(side)
    desk.claim("a")
    assert desk.begin("b", seen="q") == PayloadDiffers("a")
    token = desk.token("a")
    assert desk.begin("b", seen="q") == PayloadDiffers("a")
    desk.finish("a", token, keep_ms=LONG_MS)
    assert desk.begin("b", seen="q") == PayloadDiffers("a")
    assert timeless(desk.begin("a", "copy", seen="q")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", ["until_executing", "until_executed", "until_expired", "until_and_while_executing"])
def test_a_message_nobody_claimed_waits_for_the_one_that_has_the_seat(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a")
    expected = KeyHeld("a", "waiting", None, goes_round=True, next_round=1)
    assert timeless(desk.begin("foreign")) == expected
    assert isinstance(desk.begin("a"), RunBegun)


def test_while_executing_knows_no_seat(side: Side) -> None:
    desk = Desk(side, "while_executing")
    desk.claim("a")
    assert isinstance(desk.begin("foreign"), RunBegun)


@pytest.mark.parametrize("point", POINTS)
def test_tokens_grow_from_run_to_run_also_when_the_store_has_lost_its_memory(side: Side, point: str) -> None:
    desk = Desk(side, point)
    tokens = [desk.run(message) for message in ("a", "b", "c")]
    if side.server is not None:
        side.raw().delete(desk.record_key)
    tokens.append(desk.run("d"))
    assert tokens == sorted(set(tokens))


# --- leases ---


@pytest.mark.parametrize("point", POINTS)
def test_a_renewed_run_lives_on_and_only_its_holder_renews_it(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.begin("a", "h", ttl_ms=200)
    assert desk.renew("a", "h", ttl_ms=LONG_MS) == Renewed(LONG_MS)
    assert desk.renew("a", "other") == Lost()
    assert desk.renew("b", "h") == Lost()
    side.pass_time(0.22)
    assert timeless(desk.begin("a", "h2")) == running("a")


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_lapsed_is_not_renewed_and_goes_to_the_next_delivery(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a")
    token = desk.token("a", "h1", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert desk.renew("a", "h1") == Lost()
    assert desk.begin("a", "h2").fencing_token > token
    assert desk.finish("a", token, "h1") == RunOvertaken()
    assert desk.abandon("a", "h1") == Lost()


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_lapsed_is_still_finished_while_nobody_else_has_begun(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert desk.finish("a", token) == RunFinished(replay=False)
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_that_began_again_after_its_lease_finishes_under_its_new_token_only(side: Side, point: str) -> None:
    desk = Desk(side, point)
    old = desk.token("a", "h", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    new = desk.token("a", "h")
    assert desk.finish("a", old, "h") == RunOvertaken()
    assert desk.finish("a", new, "h") == RunFinished(replay=False)


@pytest.mark.parametrize("point", POINTS)
def test_an_unknown_run_is_not_repeated_but_its_holder_may_come_back_and_finish_it(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    for _ in range(2):
        assert desk.begin("a", "copy") == KeyHeld("a", "unknown", None)
        desk.reap("" if point in ON_KEY else "a")
    assert desk.finish("a", token) == RunFinished(replay=False)
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "1", 0)


def test_an_unknown_run_of_one_message_keeps_no_other_message_out_where_only_copies_are(side: Side) -> None:
    desk = Desk(side, "until_executing")
    desk.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    desk.reap("a")
    assert desk.claim("b") == CLAIMED
    assert isinstance(desk.begin("b"), RunBegun)


# --- ends ---


@pytest.mark.parametrize("point", POINTS)
def test_a_finish_repeated_after_a_lost_reply_is_told_that_it_was_kept(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a")
    assert desk.finish("a", token, body="first") == RunFinished(replay=False)
    assert desk.finish("a", token, body="second") == RunFinished(replay=True)
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "first", 0)
    desk.run("b")
    assert desk.finish("a", token) == RunFinished(replay=True)
    assert desk.finish("a", token - 1) == RunOvertaken()


@pytest.mark.parametrize("point", POINTS)
def test_copies_find_their_outcome_after_the_key_was_used_by_others(side: Side, point: str) -> None:
    desk = Desk(side, point)
    for message in ("a", "b", "c"):
        desk.run(message, body=message)
    for message in ("a", "b", "c"):
        assert timeless(desk.begin(message, "copy")) == OutcomeKept(message, "value", message, 0)
    desk.claim("d")
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "a", 0)


@pytest.mark.parametrize("point", ["until_executed", "until_and_while_executing"])
def test_a_claimed_message_runs_though_an_outcome_is_kept_and_an_unclaimed_one_is_given_it(
    side: Side, point: str
) -> None:
    desk = Desk(side, point)
    token = desk.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    desk.claim("b")
    desk.finish("a", token, keep_ms=LONG_MS)
    assert isinstance(desk.begin("b"), RunBegun)
    assert timeless(desk.begin("foreign")) == running("b")
    assert desk.abandon("b") == Released()
    assert timeless(desk.begin("foreign")) == OutcomeKept("a", "value", "1", 0)


def test_a_window_outlives_the_run_and_gives_its_outcome_until_it_ends(side: Side) -> None:
    desk = Desk(side, "until_expired")
    desk.claim("a", wait_ms=300)
    desk.run("a", body="7", keep_ms=LONG_MS)
    assert timeless(desk.claim("b")) == OutcomeKept("a", "value", "7", 0)
    assert timeless(desk.begin("foreign")) == OutcomeKept("a", "value", "7", 0)
    side.pass_time(0.32)
    assert desk.claim("b") == CLAIMED
    assert timeless(desk.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)


def test_a_message_nobody_claimed_takes_a_window_when_it_begins(side: Side) -> None:
    desk = Desk(side, "until_expired")
    desk.begin("foreign", window_ms=300)
    assert timeless(desk.claim("b")) == KeyHeld("foreign", "waiting", None)
    side.pass_time(0.32)
    assert desk.claim("b") == CLAIMED
    assert isinstance(desk.renew("foreign"), Renewed)


def test_a_message_of_an_old_window_that_ends_late_leaves_the_new_one_alone(side: Side) -> None:
    desk = Desk(side, "until_expired")
    desk.claim("a", wait_ms=SHORT_MS)
    token = desk.token("a")
    side.pass_time(SHORT)
    desk.claim("b")
    desk.finish("a", token)
    assert timeless(desk.claim("c")) == KeyHeld("b", "waiting", None)
    assert isinstance(desk.begin("b"), RunBegun)


@pytest.mark.parametrize("point", POINTS)
def test_an_abandoned_message_may_be_begun_again_at_once(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a")
    token = desk.token("a", "h1")
    assert desk.abandon("a", "h1") == Released()
    assert desk.finish("a", token, "h1") == RunOvertaken()
    assert desk.begin("a", "h2").fencing_token > token


@pytest.mark.parametrize("point", POINTS)
def test_only_the_holder_abandons_a_run(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.token("a", "h1")
    assert desk.abandon("a", "h2") == Lost()
    assert timeless(desk.begin("a", "h2")) == running("a")


# --- retries ---


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_is_run_and_a_fork_of_its_chain_is_not(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.claim("a")
    desk.token("a", "h0")
    assert desk.abandon("a", "h0", next_attempt=1) == Released()
    assert desk.begin("a", "fork", attempt=0) == AttemptOutdated(1)
    assert isinstance(desk.begin("a", "h1", attempt=1), RunBegun)
    assert desk.begin("a", "fork", attempt=0) == AttemptOutdated(1)
    assert timeless(desk.begin("a", "fork", attempt=1)) == running("a", 1)


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_announced_again_after_a_lost_reply_is_announced(side: Side, point: str) -> None:
    desk = Desk(side, point)
    desk.token("a", "h0")
    for _ in range(2):
        assert desk.abandon("a", "h0", next_attempt=1) == Released()
    desk.begin("a", "h1", attempt=1)
    assert desk.abandon("a", "h0", next_attempt=1) == Released()
    assert timeless(desk.begin("a", "other", attempt=1)) == running("a", 1)


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_that_was_published_before_it_was_announced_ends_the_attempt_before(side: Side, point: str) -> None:
    desk = Desk(side, point)
    token = desk.token("a", "h0", on_lapse="unknown")
    assert desk.begin("a", "h1", attempt=1).fencing_token > token
    assert desk.finish("a", token, "h0") == RunOvertaken()
    assert desk.abandon("a", "h0", next_attempt=1) == Lost()


@pytest.mark.parametrize("point", POINTS)
def test_a_fork_is_recognised_after_the_later_attempt_was_abandoned_reaped_freed_or_settled(
    side: Side, point: str
) -> None:
    where = "" if point in ON_KEY else "a"
    for end in ("abandon", "reap", "free", "settle"):
        desk = Desk(side, point)
        desk.begin("a", "h2", attempt=2, ttl_ms=SHORT_MS, on_lapse="unknown" if end == "settle" else "again")
        side.pass_time(SHORT)
        match end:
            case "abandon":
                desk.abandon("a", "h2")
            case "reap":
                desk.reap(where)
            case "free":
                desk.free(where)
            case _:
                desk.settle(None, message=where)
        assert desk.begin("a", "fork", attempt=1) == AttemptOutdated(2), end
        assert isinstance(desk.begin("a", "again", attempt=2), RunBegun), end


def test_a_retry_keeps_the_key_for_its_message_until_it_arrives(side: Side) -> None:
    desk = Desk(side)
    desk.claim("a")
    desk.token("a")
    desk.abandon("a", next_attempt=1, delay_ms=1_000)
    assert timeless(desk.claim("b")) == KeyHeld("a", "waiting", None, attempt=1)
    assert timeless(desk.begin("foreign")) == KeyHeld("a", "waiting", None, attempt=1, goes_round=True, next_round=1)
    assert isinstance(desk.begin("a", attempt=1), RunBegun)


def test_a_retry_that_never_arrives_frees_the_key_after_its_time(side: Side) -> None:
    desk = Desk(side)
    desk.token("a")
    desk.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert desk.claim("b") == CLAIMED


def test_a_retry_whose_seat_was_taken_runs_before_the_one_who_took_it_and_never_beside_it(side: Side) -> None:
    desk = Desk(side)
    desk.token("a")
    desk.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    desk.claim("b")
    token = desk.begin("a", attempt=1).fencing_token
    assert timeless(desk.begin("b")) == running("a", 1)
    desk.finish("a", token, keep_ms=LONG_MS)
    assert isinstance(desk.begin("b"), RunBegun)


def test_a_retry_is_outdated_by_nothing_that_happened_to_other_messages(side: Side) -> None:
    desk = Desk(side, "until_and_while_executing")
    desk.token("a")
    desk.abandon("a", next_attempt=1)
    desk.run("b", keep_ms=LONG_MS)
    assert isinstance(desk.begin("a", attempt=1), RunBegun)
