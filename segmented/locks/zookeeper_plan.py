"""The protocols of a lock in ZooKeeper: entering the queue, leaving it, reading it. Sync and async share them.

The recipe is that of the ZooKeeper documentation ("Recipes and Solutions", Locks): create an ephemeral, sequential
node; the lowest sequence holds the lock; every other client watches the one just ahead, so a release wakes one.
We add rules for cases that the page leaves open:

1. a create whose reply was lost may have succeeded: we search the queue for our holder id before we send another;
2. a connection that is lost and comes back within the session costs only time;
3. an attempt belongs to one session: when that ends, the attempt fails, and no node in the queue counts as ours;
4. one deadline covers everything, however many waiters are ahead;
5. an attempt that ends without a lease has its node deleted: at once if possible, otherwise by the session's caretaker
   (`stores.zookeeper`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from segmented.errors import AcquireTimeout, LeaseError, LeaseLost, StoreError, StoreUnavailable
from segmented.plans import Join, Leave, Now, Park, Place, Plan, Within, perform
from segmented.protocol.zookeeper import (
    ConfirmSession,
    Contender,
    CreateContender,
    DeleteContender,
    Entered,
    LearnSessionTime,
    ListContenders,
    LookAtSession,
    MakeParent,
    ReadContender,
    SessionSeen,
    Unanswered,
    WatchContender,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol import Operation

ONE_TRY_SECONDS: Final = 5.0
"""Maximum duration of a try without waiting, a release, or a read of the queue."""
WITHDRAW_SECONDS: Final = 0.5
"""Seconds for which leaving the queue may delay the caller, before it continues in the background."""

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of one holder to one lock."""

    name: str
    holder_id: str
    parent: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer that we are first in the queue."""

    entered: Entered
    era: int
    link: int


@dataclass(slots=True)
class Attempt:
    """The state of one plan."""

    claim: Claim
    timeout: float
    """0: one try; infinite: no limit."""
    deadline: float
    place: Place
    """The place in which it waits: all relevant events signal the channel of its holder id."""
    era: int = -1
    """-1: no session was seen yet."""
    link: int = 0
    entered: Entered | None = None
    has_asked: bool = False
    """Whether a create was sent."""


def acquire_plan(claim: Claim, timeout: float | None) -> Plan[Turn]:
    """Wait in the queue until first (`timeout` None: forever; 0: one try).

    Raises AcquireTimeout, StoreUnavailable if there was no connection or session, and LeaseLost if another client
    deleted our node; nothing is left behind.
    """
    attempt = yield from _begun(claim, inf if timeout is None else timeout)
    try:
        return (yield from _leaving(attempt, _turn(attempt)))
    except GeneratorExit:
        raise
    except BaseException:
        yield from _withdrawn(attempt)
        raise


def release_plan(claim: Claim, turn: Turn, *, was_tried: bool) -> Plan[bool]:
    """Leave the queue; return False if the node was already gone, but not by an earlier try of ours.

    Raises StoreUnavailable if the answer does not come in time, or the session is over.
    """
    attempt = yield from _begun(claim, 0)
    attempt.era = turn.era
    return (yield from _leaving(attempt, _released(attempt, turn.entered.contender, is_repeat=was_tried)))


def line_plan(claim: Claim) -> Plan[tuple[Contender, ...]]:
    """Return the queue."""
    attempt = yield from _begun(claim, 0)
    return (yield from _leaving(attempt, _asked(attempt, partial(ListContenders, parent=claim.parent))))


# --- the beginning and the end of every plan ---


def _begun(claim: Claim, timeout: float) -> Plan[Attempt]:
    deadline = (yield from perform(Now())) + (timeout or ONE_TRY_SECONDS)
    return Attempt(claim, timeout, deadline, (yield from perform(Join(claim.holder_id))))


def _leaving(attempt: Attempt, body: Plan[AnswerT]) -> Plan[AnswerT]:
    """Run the body and give up the place when it ends for any reason."""
    try:
        outcome = yield from body
    except GeneratorExit:  # the process or the event loop is ending: the store cleans up
        raise
    except BaseException:
        yield from perform(Leave(attempt.place, inf))
        raise
    yield from perform(Leave(attempt.place, inf))
    return outcome


def _withdrawn(attempt: Attempt) -> Plan[None]:
    """Leave the queue at once if possible; otherwise the store's caretaker does it."""
    if not attempt.has_asked:
        return
    until = (yield from perform(Now())) + WITHDRAW_SECONDS
    with suppress(StoreError):
        if attempt.entered is None:
            contender = yield from _own(attempt, until)
        else:
            contender = attempt.entered.contender
        if contender is not None:
            yield from perform(Within(DeleteContender(attempt.era, contender), until))


# --- pieces ---


def _turn(attempt: Attempt) -> Plan[Turn]:
    claim = attempt.claim
    yield from _asked(attempt, LearnSessionTime)
    entered = yield from _entered(attempt)
    while True:
        line = yield from _asked(attempt, partial(ListContenders, parent=claim.parent))
        if entered.contender not in line:
            raise LeaseLost(claim.name, claim.holder_id)
        index = line.index(entered.contender)
        if index == 0:
            if (yield from _connected(attempt)).is_fresh:
                return Turn(entered, attempt.era, attempt.link)
            yield from _asked(attempt, ConfirmSession)
        elif attempt.timeout == 0:
            raise AcquireTimeout(claim.name, 0.0)
        elif (
            yield from _asked(attempt, partial(WatchContender, contender=line[index - 1], channel=claim.holder_id))
        ) and not (yield from perform(Park(attempt.place, inf, attempt.deadline))):
            seen = yield from perform(LookAtSession(attempt.era))
            raise _late(attempt, is_connected=seen.is_connected)


def _entered(attempt: Attempt) -> Plan[Entered]:
    """Enter the queue at its end, only once even if the connection is lost meanwhile."""
    parent, holder_id = attempt.claim.parent, attempt.claim.holder_id
    is_unsure = False
    while attempt.entered is None:
        yield from _connected(attempt)
        try:
            if is_unsure and (contender := (yield from _own(attempt, attempt.deadline))) is not None:
                reading = ReadContender(attempt.era, contender)
                attempt.entered = yield from perform(Within(reading, attempt.deadline))
                continue
            attempt.has_asked = True
            creation = CreateContender(attempt.era, parent, holder_id)
            attempt.entered = yield from perform(Within(creation, attempt.deadline))
            if attempt.entered is None:
                yield from perform(Within(MakeParent(attempt.era, parent), attempt.deadline))
        except Unanswered:
            is_unsure = True
    return attempt.entered


def _own(attempt: Attempt, until: float) -> Plan[Contender | None]:
    """Search the queue for our holder id, after a sync: a server that lags must not hide a created node."""
    yield from perform(Within(ConfirmSession(attempt.era), until))
    line = yield from perform(Within(ListContenders(attempt.era, attempt.claim.parent), until))
    return next((one for one in line if one.holder_id == attempt.claim.holder_id), None)


def _released(attempt: Attempt, contender: Contender, *, is_repeat: bool) -> Plan[bool]:
    while True:
        yield from _connected(attempt)
        try:
            deletion = DeleteContender(attempt.era, contender)
            return (yield from perform(Within(deletion, attempt.deadline))) or is_repeat
        except Unanswered:
            is_repeat = True


def _asked(attempt: Attempt, question: Callable[[int], Operation[AnswerT]]) -> Plan[AnswerT]:
    """Ask, and ask again after each lost connection; only for operations that are safe to repeat."""
    while True:
        yield from _connected(attempt)
        try:
            return (yield from perform(Within(question(attempt.era), attempt.deadline)))
        except Unanswered:
            continue


def _connected(attempt: Attempt) -> Plan[SessionSeen]:
    """Wait for the connection. Raises StoreUnavailable if the attempt's session is over or the deadline passes."""
    while True:
        seen = yield from perform(LookAtSession(None if attempt.era < 0 else attempt.era))
        if (yield from perform(Now())) >= attempt.deadline:
            raise _late(attempt, is_connected=seen.is_connected)
        if seen.is_connected:
            attempt.era, attempt.link = seen.era, seen.link
            return seen
        yield from perform(Park(attempt.place, inf, attempt.deadline))


def _late(attempt: Attempt, *, is_connected: bool) -> LeaseError | StoreUnavailable:
    name = attempt.claim.name
    if is_connected and attempt.timeout:
        return AcquireTimeout(name, attempt.timeout)
    seconds = attempt.timeout or ONE_TRY_SECONDS
    return StoreUnavailable(f"ZooKeeper did not answer within {seconds:g} s about lock {name!r}")
