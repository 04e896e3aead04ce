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
    MessageCancelled,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunFinished,
    RunOvertaken,
)
from tests.quick.contract.dedup.test_dedup_claims import timeless
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

CLAIMED = KeyClaimed(replay=False)
ON_KEY = ["unique", "latest"]
ON_MESSAGE = ["serial"]


def running(message: str, attempt: int = 0) -> KeyHeld:
    """What the first copy of a message is told that finds this one running."""
    return KeyHeld(message, "running", None, attempt, goes_round=True, next_round=1)


# --- one run ---


@pytest.mark.parametrize("point", POINTS)
def test_a_message_is_run_by_one_holder_at_a_time(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    assert isinstance(client.begin("a", "h1"), RunBegun)
    assert timeless(client.begin("a", "h2")) == running("a")


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_that_repeats_its_beginning_after_a_lost_reply_has_the_same_token(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    first = client.begin("a", "h")
    assert client.begin("a", "h") == replace(first, replay=True)


@pytest.mark.parametrize("point", ON_KEY)
def test_two_messages_of_a_key_never_run_at_once(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert timeless(client.begin("b")) == running("a")
    client.finish("a", token)
    assert client.begin("b").fencing_token > token


@pytest.mark.parametrize("point", ON_MESSAGE)
def test_messages_of_a_key_run_side_by_side_where_only_copies_are_kept_out(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a", wait_ms=SHORT_MS)
    token = client.token("a")
    side.pass_time(SHORT)
    client.claim("b")
    assert client.begin("b").fencing_token > token


def test_up_to_so_many_run_at_once_and_a_dead_holder_counts_until_it_lapses(side: Side) -> None:
    client = KeyClient(side, "serial")
    tokens = {message: client.begin(message, at_once=3).fencing_token for message in "abc"}
    assert timeless(client.begin("d", at_once=3)) == running("a")
    assert client.renew("b") == Renewed(LONG_MS)
    client.finish("a", tokens["a"])
    client.begin("d", at_once=3, ttl_ms=SHORT_MS)
    assert isinstance(client.begin("e", at_once=3), KeyHeld)
    side.pass_time(SHORT)
    assert isinstance(client.begin("e", at_once=3), RunBegun)
    assert isinstance(client.begin("f", at_once=3), KeyHeld)
    client.abandon("b")
    assert isinstance(client.begin("f", at_once=3), RunBegun)
    assert client.cancel("c", is_dead=True) == MessageCancelled()
    assert isinstance(client.begin("g", at_once=3), RunBegun)
    client.free("e")
    assert isinstance(client.begin("h", at_once=3), RunBegun)
    assert isinstance(client.begin("i", at_once=3), KeyHeld)


def test_another_payload_is_refused_by_a_run_a_seat_and_a_kept_outcome(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a")
    assert client.begin("b", seen="q") == PayloadDiffers("a")
    token = client.token("a")
    assert client.begin("b", seen="q") == PayloadDiffers("a")
    client.finish("a", token, keep_ms=LONG_MS)
    assert client.begin("b", seen="q") == PayloadDiffers("a")
    assert timeless(client.begin("a", "copy", seen="q")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_message_nobody_claimed_waits_for_the_one_that_has_the_seat(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    expected = KeyHeld("a", "waiting", None, goes_round=True, next_round=1)
    assert timeless(client.begin("foreign")) == expected
    assert isinstance(client.begin("a"), RunBegun)


def test_serial_knows_no_seat(side: Side) -> None:
    client = KeyClient(side, "serial")
    client.claim("a")
    assert isinstance(client.begin("foreign"), RunBegun)


@pytest.mark.parametrize("point", POINTS)
def test_tokens_grow_from_run_to_run_also_when_the_store_has_lost_its_memory(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    tokens = [client.run(message) for message in ("a", "b", "c")]
    if side.server is not None:
        side.raw().delete(client.record_key)
    tokens.append(client.run("d"))
    assert tokens == sorted(set(tokens))


# --- leases ---


@pytest.mark.parametrize("point", POINTS)
def test_a_renewed_run_lives_on_and_only_its_holder_renews_it(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.begin("a", "h", ttl_ms=LONG_MS // 10)
    assert client.renew("a", "h", ttl_ms=LONG_MS) == Renewed(LONG_MS)
    assert client.renew("a", "other") == Lost()
    assert client.renew("b", "h") == Lost()
    state = client.read("" if client.point.run_on == "key" else "a")
    assert state is not None
    assert state.run is not None
    assert LONG_MS - 60_000 < (state.run.ends_in_ms or 0) <= LONG_MS
    assert timeless(client.begin("a", "h2")) == running("a")


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_lapsed_is_not_renewed_and_goes_to_the_next_delivery(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    token = client.token("a", "h1", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.renew("a", "h1") == Lost()
    assert client.begin("a", "h2").fencing_token > token
    assert client.finish("a", token, "h1") == RunOvertaken()
    assert client.abandon("a", "h1") == Lost()


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_lapsed_is_still_finished_while_nobody_else_has_begun(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.finish("a", token) == RunFinished(replay=False)
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_that_began_again_after_its_lease_finishes_under_its_new_token_only(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    old = client.token("a", "h", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    new = client.token("a", "h")
    assert client.finish("a", old, "h") == RunOvertaken()
    assert client.finish("a", new, "h") == RunFinished(replay=False)


@pytest.mark.parametrize("point", POINTS)
def test_an_unknown_run_is_not_repeated_but_its_holder_may_come_back_and_finish_it(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    for _ in range(2):
        assert client.begin("a", "copy") == KeyHeld("a", "unknown", None)
    assert client.finish("a", token) == RunFinished(replay=False)
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "1", 0)


def test_an_unknown_run_of_one_message_excludes_no_other_where_only_copies_are(side: Side) -> None:
    client = KeyClient(side, "serial")
    client.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    assert client.claim("b") == CLAIMED
    assert isinstance(client.begin("b"), RunBegun)


# --- ends ---


@pytest.mark.parametrize("point", POINTS)
def test_a_finish_repeated_after_a_lost_reply_is_told_that_it_was_kept(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert client.finish("a", token, body="first") == RunFinished(replay=False)
    assert client.finish("a", token, body="second") == RunFinished(replay=True)
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "first", 0)
    client.run("b")
    assert client.finish("a", token) == RunFinished(replay=True)
    assert client.finish("a", token - 1) == RunOvertaken()


@pytest.mark.parametrize("point", POINTS)
def test_copies_find_their_outcome_after_the_key_was_used_by_others(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    for message in ("a", "b", "c"):
        client.run(message, body=message)
    for message in ("a", "b", "c"):
        assert timeless(client.begin(message, "copy")) == OutcomeKept(message, "value", message, 0)
    client.claim("d")
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "a", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_claimed_message_runs_beside_a_kept_outcome_and_an_unclaimed_one_gets_it(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    client.claim("b")
    client.finish("a", token, keep_ms=LONG_MS)
    assert isinstance(client.begin("b"), RunBegun)
    assert timeless(client.begin("foreign")) == running("b")
    assert client.abandon("b") == Released()
    assert timeless(client.begin("foreign")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_an_abandoned_message_may_be_begun_again_at_once(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    token = client.token("a", "h1")
    assert client.abandon("a", "h1") == Released()
    assert client.finish("a", token, "h1") == RunOvertaken()
    assert client.begin("a", "h2").fencing_token > token


@pytest.mark.parametrize("point", POINTS)
def test_only_the_holder_abandons_a_run(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a", "h1")
    assert client.abandon("a", "h2") == Lost()
    assert timeless(client.begin("a", "h2")) == running("a")


# --- retries ---


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_is_run_and_a_fork_of_its_chain_is_not(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    client.token("a", "h0")
    assert client.abandon("a", "h0", next_attempt=1) == Released()
    assert client.begin("a", "fork", attempt=0) == AttemptOutdated(1)
    assert isinstance(client.begin("a", "h1", attempt=1), RunBegun)
    assert client.begin("a", "fork", attempt=0) == AttemptOutdated(1)
    assert timeless(client.begin("a", "fork", attempt=1)) == running("a", 1)


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_announced_again_after_a_lost_reply_is_announced(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a", "h0")
    for _ in range(2):
        assert client.abandon("a", "h0", next_attempt=1) == Released()
    client.begin("a", "h1", attempt=1)
    assert client.abandon("a", "h0", next_attempt=1) == Released()
    assert timeless(client.begin("a", "other", attempt=1)) == running("a", 1)


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_that_was_published_before_it_was_announced_ends_the_attempt_before(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", "h0", on_lapse="unknown")
    assert client.begin("a", "h1", attempt=1).fencing_token > token
    assert client.finish("a", token, "h0") == RunOvertaken()
    assert client.abandon("a", "h0", next_attempt=1) == Lost()


@pytest.mark.parametrize("point", POINTS)
def test_a_fork_is_recognised_after_any_end_of_the_later_attempt(side: Side, point: str) -> None:
    """The later attempt was abandoned, freed or settled."""
    where = "" if point in ON_KEY else "a"
    for end in ("abandon", "free", "settle"):
        client = KeyClient(side, point)
        client.begin("a", "h2", attempt=2, ttl_ms=SHORT_MS, on_lapse="unknown" if end == "settle" else "again")
        side.pass_time(SHORT)
        match end:
            case "abandon":
                client.abandon("a", "h2")
            case "free":
                client.free(where)
            case _:
                client.settle(None, message=where)
        assert client.begin("a", "fork", attempt=1) == AttemptOutdated(2), end
        assert isinstance(client.begin("a", "again", attempt=2), RunBegun), end


def test_a_retry_keeps_the_key_for_its_message_until_it_arrives(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a")
    client.token("a")
    client.abandon("a", next_attempt=1, delay_ms=1_000)
    assert timeless(client.claim("b")) == KeyHeld("a", "waiting", None, attempt=1)
    assert timeless(client.begin("foreign")) == KeyHeld("a", "waiting", None, attempt=1, goes_round=True, next_round=1)
    assert isinstance(client.begin("a", attempt=1), RunBegun)


def test_a_retry_that_never_arrives_frees_the_key_after_its_time(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("b") == CLAIMED


def test_a_retry_whose_seat_was_taken_runs_before_its_taker_and_never_beside_it(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    client.claim("b")
    token = client.begin("a", attempt=1).fencing_token
    assert timeless(client.begin("b")) == running("a", 1)
    client.finish("a", token, keep_ms=LONG_MS)
    assert isinstance(client.begin("b"), RunBegun)


def test_a_retry_is_outdated_by_nothing_that_happened_to_other_messages(side: Side) -> None:
    client = KeyClient(side, "serial")
    client.token("a")
    client.abandon("a", next_attempt=1)
    client.run("b", keep_ms=LONG_MS)
    assert isinstance(client.begin("a", attempt=1), RunBegun)
