"""The two plans of a single flight: look for the value or get the turn to load it; and land with what was loaded.

Between them the shells run the loader, which is the caller's own code. After them they release the lock, whose message
wakes one waiter a process: it looks again, finds the value, and the next in line looks at once.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from segmented.errors import AcquireTimeout, LeaseLost, StoreError
from segmented.locks.lease_state import trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Cached, Held, MayLoad, Outpaced
from segmented.plans import Now, Plan, perform, wait_for
from segmented.protocol import ReadOrAcquire, WriteCached

if TYPE_CHECKING:
    from segmented.locks.flight_options import Entry, FlightOptions
    from segmented.models import Acquired

NOTHING: Final = Cached("none", "")

_log = logging.getLogger("segmented.locks")


@dataclass(frozen=True, slots=True)
class Turn:
    """It is the caller's turn to load the value; `old` is what is kept until then."""

    claim: LockClaim
    acquired: Acquired
    asked_at: float
    old: Cached | None


def look_plan(name: str, holder_id: str, options: FlightOptions) -> Plan[Cached | Turn]:
    """Return what is kept, or the caller's turn; wait while somebody else loads what is not there.

    Raises AcquireTimeout when the loading of others took longer than `wait`, and LeaseLost when the answer came after
    the lease had lapsed; nothing is left behind.
    """
    claim = LockClaim(name, holder_id, options.lease_ms)
    answer, asked_at = yield from wait_for(
        ReadOrAcquire(name, holder_id, options.lease_ms, options.hold_off_ms),
        channel=claim.channel,
        timeout=options.wait,
        is_busy=lambda answer: isinstance(answer, Held),
        undo=claim.releasing,
    )
    if isinstance(answer, Cached):
        return answer
    if not isinstance(answer, MayLoad):
        raise AcquireTimeout(name, inf if options.wait is None else options.wait)
    if (yield from perform(Now())) >= trusted_until(asked_at, options.lease_ms):
        with suppress(StoreError):  # it lapses anyway
            yield from perform(claim.releasing())
        raise LeaseLost(name, holder_id)
    return Turn(claim, answer.acquired, asked_at, answer.old)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The loader gave a value."""

    value: object


@dataclass(frozen=True, slots=True)
class Failed:
    """The loader raised, or its value could not be kept. The error is for the caller whose loader it was."""

    error: Exception


def landing_plan(turn: Turn, outcome: Loaded | Failed, options: FlightOptions) -> Plan[Cached | Failed]:
    """Keep what the loader gave, and return what its caller gets of it.

    1. a value is kept, and given as the others will get it; so is None, if it is to be kept;
    2. a failure to make an old value anew leaves that standing;
    3. any other failure is kept for the others.
    """
    name = turn.claim.name
    if isinstance(outcome, Loaded):
        try:
            entry = options.entry(name, outcome.value)
        except Exception as error:  # noqa: BLE001  # whatever the caller's own `dump` raises is its loader's failure
            outcome = Failed(error)
        else:
            if entry is None:
                return NOTHING
            yield from _keep_plan(turn, entry)
            return entry.value
    if turn.old is not None:
        reason = f"{type(outcome.error).__qualname__}: {outcome.error}"
        _log.warning("flight.refresh_failed", extra={"flight": name, "reason": reason})
        return turn.old
    failure = options.failure(outcome.error)
    if failure is not None:
        yield from _keep_plan(turn, failure)
    return outcome


def _keep_plan(turn: Turn, entry: Entry) -> Plan[None]:
    """Write; a store that does not answer is logged, as the value is good all the same."""
    claim, lives = turn.claim, (entry.ttl_ms, entry.refresh_in_ms)
    write = WriteCached(claim.name, claim.holder_id, turn.acquired.fencing_token, entry.value, *lives)
    try:
        answer = yield from perform(write)
    except StoreError as error:
        _log.warning("flight.not_kept", extra={"flight": claim.name, "reason": str(error)})
    else:
        if isinstance(answer, Outpaced):
            _log.info("flight.outpaced", extra={"flight": claim.name})
