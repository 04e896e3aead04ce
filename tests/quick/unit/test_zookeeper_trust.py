"""For how long a session may be believed in, second by second."""

from __future__ import annotations

from math import inf

import pytest

from segmented.stores.zookeeper.trust import Trust

SESSION = 10.0


def trusting(contact_at: float = 100.0) -> Trust:
    """A connected session of 10 s, confirmed at `contact_at`."""
    trust = Trust()
    trust.connect()
    trust.session_seconds = SESSION
    trust.note_contact(trust.era, contact_at)
    return trust


def test_a_lease_is_trusted_for_two_fifths_of_the_session_after_a_confirmed_request() -> None:
    assert trusting().trusted_until(1) == 104.0


def test_a_lease_is_lost_a_little_before_the_session_time_is_over() -> None:
    trust = trusting()
    assert trust.over_at() == pytest.approx(100.0 + 9.9 - 0.002)
    trust.look_at_clock(109.8979)
    assert trust.era == 0
    trust.look_at_clock(109.8981)
    assert trust.era == 1


def test_a_session_is_confirmed_eight_times_in_its_time() -> None:
    assert trusting().beat_seconds() == 1.25


def test_nothing_is_trusted_before_the_session_time_and_a_contact_are_known() -> None:
    trust = Trust()
    assert (trust.trusted_until(0), trust.over_at(), trust.beat_seconds()) == (-inf, inf, inf)
    trust.connect()
    trust.session_seconds = SESSION
    assert (trust.trusted_until(1), trust.over_at()) == (-inf, inf)


def test_an_older_answer_that_comes_late_takes_no_trust_away() -> None:
    trust = trusting(100.0)
    trust.note_contact(0, 99.0)
    assert trust.trusted_until(1) == 104.0


def test_without_a_connection_a_lease_is_in_doubt_until_a_new_one_has_seen_it() -> None:
    """A new connection alone is not enough: the node must be seen there."""
    trust = trusting()
    trust.disconnect()
    assert trust.trusted_until(1) == -inf
    trust.connect()
    assert trust.trusted_until(1) == -inf
    assert trust.trusted_until(2) == 104.0


def test_a_disconnection_alone_does_not_end_the_era() -> None:
    trust = trusting()
    trust.disconnect()
    trust.look_at_clock(109.0)
    assert trust.era == 0


def test_the_end_of_a_session_ends_the_era_and_the_next_one_learns_its_time_anew() -> None:
    trust = trusting()
    trust.end_session()
    assert (trust.era, trust.session_seconds, trust.is_connected) == (1, None, False)


def test_a_contact_of_an_era_that_is_over_counts_for_nothing() -> None:
    trust = trusting()
    trust.end_session()
    trust.connect()
    trust.session_seconds = SESSION
    trust.note_contact(0, 200.0)
    assert trust.trusted_until(2) == -inf


def test_an_idle_session_that_nobody_confirms_is_not_given_up() -> None:
    trust = trusting()
    trust.forget_contact()
    trust.look_at_clock(10_000.0)
    assert trust.era == 0
