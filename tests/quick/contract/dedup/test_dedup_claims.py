"""Publication: who gets the seat of a key, and what the others are told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from segmented.models.dedup import (
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
)
from tests.support.contract.bodies import Since
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from segmented.models.dedup import HeldState
    from tests.fixtures.stores import Side

SEATED = ["until_executing", "until_executed", "until_expired", "until_and_while_executing"]
CLAIMED = KeyClaimed(replay=False)


def timeless(answer: object) -> object:
    """Leave out the times, of which other tests speak."""
    match answer:
        case KeyHeld():
            return replace(answer, free_in_ms=None)
        case OutcomeKept():
            return replace(answer, age_ms=0)
    return answer


@pytest.mark.parametrize("point", SEATED)
def test_the_first_message_has_the_seat_and_the_second_is_told_whose_it_is(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    assert client.claim("a") == CLAIMED
    answer = client.claim("b")
    assert answer == KeyHeld("a", "waiting", answer.free_in_ms)
    assert LONG_MS - 30_000 < answer.free_in_ms <= LONG_MS


@pytest.mark.parametrize("point", SEATED)
def test_a_claim_repeated_after_a_lost_reply_is_the_same_claim(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    assert client.claim("a", delay_ms=LONG_MS) == KeyClaimed(replay=False, delay_ms=LONG_MS)
    again = client.claim("a", delay_ms=LONG_MS)
    assert again == KeyClaimed(replay=True, delay_ms=again.delay_ms)
    assert LONG_MS - 30_000 < again.delay_ms <= LONG_MS


def test_a_repeated_claim_is_told_so_before_all_else_that_is_known_of_the_key(side: Side) -> None:
    client = KeyClient(side, "until_and_while_executing")
    token = client.token("old")
    assert client.claim("a") == CLAIMED
    assert client.claim("a") == KeyClaimed(replay=True)
    client.finish("old", token, keep_ms=LONG_MS)
    assert client.claim("a") == KeyClaimed(replay=True)


@pytest.mark.parametrize("point", ["until_executed", "until_and_while_executing"])
def test_a_message_whose_worker_died_is_a_repeat_of_the_one_that_took_its_place(side: Side, point: str) -> None:
    is_one = point == "until_executed"  # at the other point every message runs
    client = KeyClient(side, point)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("new") == CLAIMED
    client.finish("new", client.token("new"))
    again = client.begin("old", "again")  # its broker delivers it once more
    assert timeless(again) == OutcomeKept("new", "value", "1", 0) if is_one else isinstance(again, RunBegun)


def test_a_message_whose_worker_died_runs_where_its_successor_never_comes(side: Side) -> None:
    client = KeyClient(side)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    since = Since(side)
    assert client.claim("new", wait_ms=SHORT_MS) == CLAIMED
    found = timeless(client.begin("old", "again"))
    held = KeyHeld("new", "waiting", None, goes_round=True, next_round=1)
    assert found == held or not since.is_within(SHORT_MS / 1000)
    side.pass_time(SHORT)
    assert isinstance(client.begin("old", "again"), RunBegun)


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_message_whose_worker_died_runs_where_its_successor_was_cancelled(side: Side, *, is_reaped: bool) -> None:
    client = KeyClient(side)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    if is_reaped:
        client.reap()
    client.claim("new")
    client.cancel("new")
    assert isinstance(client.begin("old", "again"), RunBegun)


def test_a_reaper_in_between_does_not_have_a_message_run_again(side: Side) -> None:
    client = KeyClient(side)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    client.reap()
    client.claim("new")
    client.finish("new", client.token("new"))
    assert timeless(client.begin("old", "again")) == OutcomeKept("new", "value", "1", 0)


def test_another_payload_does_not_take_the_place_of_a_message_whose_worker_died(side: Side) -> None:
    client = KeyClient(side)
    client.begin("old", seen="p", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("new", "q") == CLAIMED
    client.finish("new", client.begin("new", seen="q").fencing_token)
    assert isinstance(client.begin("old", "again", seen="p"), RunBegun)


@pytest.mark.parametrize("point", SEATED)
def test_a_seat_that_nobody_came_for_is_free_after_its_time(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a", wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("b") == CLAIMED


def test_another_payload_under_a_key_is_refused_wherever_the_key_is_in_use(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", "p")
    assert client.claim("b", "q") == PayloadDiffers("a")
    assert timeless(client.claim("b", "")) == KeyHeld("a", "waiting", None)
    token = client.token("a")
    assert client.claim("b", "q") == PayloadDiffers("a")
    client.finish("a", token, keep_ms=LONG_MS)
    assert client.claim("b", "q") == PayloadDiffers("a")
    assert timeless(client.claim("b", "p")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_run_keeps_publishers_away_at_until_executed_and_a_window_too(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    client.token("a")
    in_the_way = {"until_executed": "running", "until_expired": "waiting"}
    state = in_the_way.get(point)
    expected = CLAIMED if state is None else KeyHeld("a", cast("HeldState", state), None)
    assert timeless(client.claim("b")) == expected


def test_an_unknown_run_keeps_publishers_away_and_says_for_how_long_nobody_knows(side: Side) -> None:
    client = KeyClient(side)
    client.begin("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    assert client.claim("b") == KeyHeld("a", "unknown", None)
    client.reap()
    assert client.claim("b") == KeyHeld("a", "unknown", None)


def test_an_outcome_is_given_to_publishers_for_as_long_as_it_is_kept(side: Side) -> None:
    client, brief = KeyClient(side), KeyClient(side)
    client.run("a", body="7", keep_ms=LONG_MS)
    assert timeless(client.claim("b")) == OutcomeKept("a", "value", "7", 0)
    brief.run("a", body="7", keep_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert brief.claim("b") == CLAIMED


def test_a_kept_cancellation_is_told_as_an_outcome(side: Side) -> None:
    client = KeyClient(side)
    token = client.token("a")
    side.execute(client.finishing("a", token, kind="cancelled", body="", keep_ms=LONG_MS))
    assert timeless(client.claim("b")) == OutcomeKept("a", "cancelled", "", 0)
    assert timeless(client.begin("foreign")) == OutcomeKept("a", "cancelled", "", 0)
    assert client.begin("a", "2") == MessageCancelled()


# --- one that waits ---


def test_one_of_the_publishers_is_asked_to_send_a_message_again_that_waits_too_long(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", resend_ms=SHORT_MS)
    assert not client.claim("b", resend_ms=LONG_MS).resend
    side.pass_time(SHORT)
    assert not client.claim("b").resend
    since = Since(side)
    assert client.claim("b", resend_ms=SHORT_MS).resend
    assert not (client.claim("c", resend_ms=SHORT_MS).resend and since.is_within(SHORT_MS / 1000))


def test_a_message_that_is_not_due_yet_is_not_sent_again(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", delay_ms=LONG_MS)
    side.pass_time(SHORT)
    assert not client.claim("b", resend_ms=SHORT_MS).resend
    seat = client.read().seat  # type: ignore[union-attr]  # it was just claimed
    assert seat is not None
    assert -LONG_MS <= seat.sent_ago_ms < 0


@pytest.mark.parametrize("point", SEATED)
def test_a_replaced_message_waits_for_its_successor_and_gets_its_outcome(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    for message in ("a", "b"):
        client.claim(message, message, replaces=True)
    assert client.claim("c", "q", replaces=True) == KeyClaimed(replay=False, replaced="b")
    assert timeless(client.begin("a", seen="")) == KeyHeld("c", "waiting", None, goes_round=True, next_round=1)
    token = client.begin("c", seen="q").fencing_token
    assert timeless(client.begin("a", seen="")) == KeyHeld("c", "running", None, goes_round=True, next_round=1)
    client.finish("c", token, body="7")
    for message in ("a", "b"):
        assert timeless(client.begin(message)) == OutcomeKept("c", "value", "7", 0)


@pytest.mark.parametrize("point", SEATED)
def test_a_replaced_message_does_not_begin_after_its_successor_and_other_uses(side: Side, point: str) -> None:
    """Its successor ran and ended, and the key was used by others since."""
    client = KeyClient(side, point)
    client.claim("a")
    client.claim("b", replaces=True)
    client.run("b", body="7")
    if point != "until_expired":
        client.run("c")
    assert timeless(client.begin("a")) == OutcomeKept("b", "value", "7", 0)


@pytest.mark.parametrize("point", SEATED)
def test_a_replaced_message_begins_if_its_successor_never_came_but_not_if_cancelled(side: Side, point: str) -> None:
    client, other = KeyClient(side, point), KeyClient(side, point)
    for one in (client, other):
        one.claim("a")
        one.claim("b", replaces=True, wait_ms=SHORT_MS if one is client else LONG_MS)
    other.cancel("b")
    side.pass_time(SHORT)
    assert other.begin("a") == MessageCancelled()
    assert isinstance(client.begin("a"), RunBegun)


def test_a_retry_that_was_replaced_waits_for_its_successor(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.abandon("a", next_attempt=1)
    assert client.claim("b", replaces=True).replaced == "a"
    expected = KeyHeld("b", "waiting", None, goes_round=True, next_round=1)
    assert timeless(client.begin("a", attempt=1)) == expected
    client.run("b", body="7")
    assert timeless(client.begin("a", attempt=1)) == OutcomeKept("b", "value", "7", 0)


def test_a_replaced_message_that_repeats_its_claim_does_not_end_its_successor(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", replaces=True)
    client.claim("b", replaces=True)
    assert timeless(client.claim("a", replaces=True)) == KeyHeld("b", "waiting", None)
    client.run("b")
    assert client.claim("a", replaces=True) == CLAIMED  # it was not published yet: it runs once it is
    assert isinstance(client.begin("a"), RunBegun)


def test_a_replaced_message_is_remembered_until_after_it_would_have_been_due(side: Side) -> None:
    client, since = KeyClient(side), Since(side)
    client.claim("a", delay_ms=2 * SHORT_MS, wait_ms=SHORT_MS, remember_ms=2 * SHORT_MS)
    client.claim("b", replaces=True, remember_ms=2 * SHORT_MS)
    client.run("b", body="7")
    side.pass_time(3 * SHORT_MS / 1000)
    found = timeless(client.begin("a"))
    assert found == OutcomeKept("b", "value", "7", 0) or not since.is_within(4 * SHORT_MS / 1000)


def test_a_message_whose_window_is_taken_over_while_it_runs_goes_on(side: Side) -> None:
    client = KeyClient(side, "until_expired")
    client.claim("a")
    token = client.token("a")
    assert client.claim("b", replaces=True) == KeyClaimed(replay=False, replaced="a")
    assert timeless(client.begin("a", "other")) == KeyHeld("a", "running", None, goes_round=True, next_round=1)
    assert client.finish("a", token).replay is False


def test_a_message_can_be_put_off_by_replacing_it_but_not_for_ever(side: Side) -> None:
    client, since = KeyClient(side), Since(side)
    assert client.claim("a", delay_ms=400, delay_max_ms=600).delay_ms == 400
    side.pass_time(0.4)
    answer = client.claim("b", delay_ms=400, delay_max_ms=600, replaces=True)
    assert answer.replaced == "a"
    assert answer.delay_ms <= 200
    assert answer.delay_ms > 0 or not since.is_within(0.6)
    side.pass_time(0.22)
    assert client.claim("c", delay_ms=400, delay_max_ms=600, replaces=True).delay_ms == 0


@pytest.mark.parametrize("point", SEATED)
def test_a_message_cancelled_while_its_claim_was_repeated_blocks_nobody_on_arrival(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.cancel("a")
    assert client.claim("a") == CLAIMED
    assert client.begin("a") == MessageCancelled()
    assert client.claim("b") == CLAIMED
