"""What an acquire of a reentrant lock asks for first: the lock, or, behind others of its process, only to re-enter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.locks.handle import acquire_plan
from segmented.locks.reentrant import ReentrantClaim
from segmented.models import Acquired, Held
from segmented.plans import Join, Leave, Line, Listen, Now, Park, Try, Within
from segmented.protocol import AcquireReentrant
from segmented.protocol.lock import NEWCOMER

if TYPE_CHECKING:
    from segmented.locks.handle import Found
    from segmented.plans import Plan

CLAIM = ReentrantClaim("door", "h", 1_000, "a")
ENTER = AcquireReentrant("door", "a", "h", 1_000)
AGAIN = Acquired(7, 1_000, replay=False)
WOKEN = True
ENTER_AGAIN = AcquireReentrant("door", "a", "h", 1_000, only_again=True)


def test_where_nobody_waits_it_asks_for_the_lock() -> None:
    asked = replace(ENTER, party=NEWCOMER)
    assert next(acquire_plan(CLAIM, 5.0)) == Try(asked, CLAIM.channel, 5.0, joins_if_heard=True)


def behind_another() -> Plan[Found]:
    """Bring a plan, by the line that it stands in, to its first request."""
    line = Line(CLAIM.channel)
    line.join(lambda: None)
    plan = acquire_plan(CLAIM, 5.0)
    trying = next(plan)
    assert isinstance(trying, Try)
    trying.asked_at = 100.0
    assert plan.send(None) == Join(CLAIM.channel)
    assert plan.send(line.join(lambda: None)) == Now()
    assert plan.send(100.0) == Within(ENTER_AGAIN, 105.0)
    return plan


def test_a_waiter_behind_others_asks_once_whether_its_owner_holds_and_then_waits() -> None:
    plan = behind_another()
    assert plan.send(Held(30_000)) == Now()
    assert plan.send(100.1) == Listen(CLAIM.channel, 105.0)
    assert isinstance(plan.send(None), Park)
    assert plan.send(WOKEN) == Now()
    assert plan.send(101.0) == Within(ENTER, 105.0)


def test_an_owner_that_holds_the_lock_is_in_without_waiting_for_its_turn() -> None:
    plan = behind_another()
    assert plan.send(AGAIN) == Now()
    assert isinstance(plan.send(100.1), Leave)
    assert plan.send(None) == Now()
    with pytest.raises(StopIteration) as stop:
        plan.send(100.1)
    assert stop.value.value == (AGAIN, 100.0)
