"""The protocol of `MultiLock`: try all names at once, else take them one by one in sorted order, and all or none.

While it waits for one name, those that it holds are renewed every third of their time to live. Should one be lost all
the same (the process slept, or an operator revoked it), all are given back and it starts over within the same deadline:
to wait for a name while holding a later one could close a circle.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from segmented.errors import AcquireTimeout, LeaseLost, LockUnreachable, SegmentedError, StoreBusy, StoreUnavailable
from segmented.locks.handle import Found, acquire_plan
from segmented.locks.lease_state import RENEWALS_PER_TTL, RETRIES_PER_TTL, trusted_until
from segmented.models import Acquired, Held, Lost, Renewed
from segmented.plans import Batch, Now, Park, Plan, perform
from segmented.plans.waiting import UNDO_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.locks.lock import LockClaim

OutcomeT = TypeVar("OutcomeT")


class _Slipped(Exception):
    """A name that was held is lost."""


def multi_plan(claims: Sequence[LockClaim], timeout: float | None) -> Plan[list[Found]]:
    """Acquire all of `claims`, in their order, within `timeout` seconds in all (None: for ever; 0: one try).

    Raises AcquireTimeout, which names the one that was not free; nothing is left behind.
    """
    deadline = inf if not timeout else (yield from perform(Now())) + timeout
    while True:
        found = yield from _all_at_once(claims, deadline)
        if isinstance(found, list):
            return found
        if timeout == 0:
            raise found
        try:
            return (yield from _in_order(claims, timeout, deadline))
        except _Slipped:
            continue


def _all_at_once(claims: Sequence[LockClaim], deadline: float) -> Plan[list[Found] | AcquireTimeout]:
    """Ask for all in one batch; give back what was got when one was held, and return an error that names that one."""
    asked_at = yield from perform(Now())
    try:
        answers = yield from perform(Batch(tuple(claim.acquiring() for claim in claims), deadline))
    except GeneratorExit:  # the process is gone: a dead one cleans nothing up
        raise
    except BaseException:
        yield from _given_back(claims, deadline)
        raise
    found = [(answer, asked_at) for answer in answers if isinstance(answer, Acquired)]
    if len(found) == len(claims):
        if (yield from perform(Now())) < min(trusted_until(asked_at, answer.ttl_ms) for answer, _ in found):
            return found
        yield from _given_back(claims, deadline)
        raise LeaseLost(claims[0].name, claims[0].holder_id)
    asked = list(zip(claims, answers, strict=True))
    yield from _given_back([claim for claim, answer in asked if not isinstance(answer, Held)], deadline)
    for claim, answer in asked:
        if isinstance(answer, StoreUnavailable) and not isinstance(answer, StoreBusy):
            raise LockUnreachable(claim.name, str(answer)) from answer
        if isinstance(answer, SegmentedError):
            raise answer
    name, held = next((claim.name, answer) for claim, answer in asked if isinstance(answer, Held))
    return AcquireTimeout(name, 0.0, is_delayed=held.is_delayed)


def _in_order(claims: Sequence[LockClaim], timeout: float | None, deadline: float) -> Plan[list[Found]]:
    """Wait for one after the other, holding those before it."""
    held = _Held(claims[0].ttl_ms / 1000)
    try:
        for claim in claims:
            left = None if timeout is None else max(0.0, deadline - (yield from perform(Now())))
            held.add(claim, (yield from _tended(acquire_plan(claim, left), held)))
        if held.renew_at <= (yield from perform(Now())):
            yield from held.tend()
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from _given_back(list(held.found), deadline)
        if isinstance(error, AcquireTimeout):
            raise AcquireTimeout(error.name, timeout or 0.0, is_delayed=error.is_delayed) from None
        raise
    return list(held.found.values())


class _Held:
    """What a plan has acquired so far, and when that has to be renewed."""

    def __init__(self, ttl: float) -> None:
        """Hold nothing yet."""
        self.found: dict[LockClaim, Found] = {}
        self.renew_at = inf
        self._ttl = ttl

    def add(self, claim: LockClaim, found: Found) -> None:
        """Note one more."""
        self.found[claim] = found
        self.renew_at = min(self.renew_at, found[1] + self._ttl / RENEWALS_PER_TTL)

    def tend(self) -> Plan[None]:
        """Renew all; raises _Slipped when one is lost, or may no longer be trusted."""
        asked_at = yield from perform(Now())
        trusted = self._trusted_until()
        operations = tuple(claim.renewing(claim.ttl_ms) for claim in self.found)
        answers = yield from perform(Batch(operations, trusted))
        for (claim, (acquired, _)), answer in zip(list(self.found.items()), answers, strict=True):
            if isinstance(answer, Lost):
                raise _Slipped
            if isinstance(answer, Renewed):
                self.found[claim] = (acquired, asked_at)
        if self._trusted_until() <= (yield from perform(Now())):
            raise _Slipped
        is_renewed = all(isinstance(answer, Renewed) for answer in answers)
        self.renew_at = asked_at + self._ttl / (RENEWALS_PER_TTL if is_renewed else RETRIES_PER_TTL)

    def _trusted_until(self) -> float:
        return min(trusted_until(asked_at, acquired.ttl_ms) for acquired, asked_at in self.found.values())


def _tended(plan: Plan[OutcomeT], held: _Held) -> Plan[OutcomeT]:
    """Run a plan, but wake from its sleep, without leaving the line, whenever what is held has to be renewed."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the plan's return value is untyped here
        reply, failure = None, None
        try:
            reply = yield from (_parked(effect, held) if isinstance(effect, Park) else perform(effect))
        except GeneratorExit:
            plan.close()
            raise
        except BaseException as error:  # noqa: BLE001  # every exception belongs to the plan
            failure = error


def _parked(park: Park, held: _Held) -> Plan[bool]:
    while True:
        if (yield from perform(Park(park.place, park.due, min(park.deadline, held.renew_at)))):
            return True
        if park.deadline <= (yield from perform(Now())):
            return False
        yield from held.tend()


def _given_back(claims: Sequence[LockClaim], deadline: float) -> Plan[None]:
    if claims:  # a failure is no matter: what could not be given back lapses
        soon = (yield from perform(Now())) + UNDO_SECONDS
        yield from perform(Batch(tuple(claim.releasing() for claim in claims), max(deadline, soon)))
