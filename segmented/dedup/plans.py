"""The protocol of a deduplicated call: begin it or learn why not, and keep what became of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from segmented.dedup.errors import AttemptSuperseded, CallCancelled, EffectUnknown, InFlight, OtherPayload, RunLost
from segmented.errors import SegmentedError
from segmented.locks.lease_state import trusted_until
from segmented.models.dedup import (
    AttemptOutdated,
    KeyHeld,
    MessageCancelled,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunFinished,
)
from segmented.plans import Now, Plan, Within, perform
from segmented.plans.waiting import UNDO_SECONDS, wait_for
from segmented.protocol import FinishRunWithEffect

if TYPE_CHECKING:
    from segmented.dedup.effects_in_store import StoreEffect
    from segmented.dedup.terms import RunClaim
    from segmented.protocol import BeginRun, FinishRun

Begun = tuple[RunBegun, float]
"""The answer, and the local time from which its lease counts."""


def is_in_flight(answer: object) -> bool:
    """Is it worth waiting for? Not for what only a human or a resolver can end."""
    return isinstance(answer, KeyHeld) and answer.state != "unknown"


def begin_plan(claim: RunClaim, beginning: BeginRun, timeout: float | None) -> Plan[Begun | OutcomeKept]:
    """Begin the run, waiting up to `timeout` seconds for another call with the key to end (0: not at all).

    Raises what `refusal` makes of the answer, and RunLost where it took longer than the lease lasts; nothing is left
    behind then.
    """
    answer, asked_at = yield from wait_for(
        beginning, channel=claim.channel, timeout=timeout, is_busy=is_in_flight, undo=claim.releasing
    )
    if isinstance(answer, RunBegun):
        now = yield from perform(Now())
        if now < trusted_until(asked_at, answer.ttl_ms):
            return answer, asked_at
        with suppress(SegmentedError):  # it lapses anyway
            yield from perform(Within(claim.releasing(), now + UNDO_SECONDS))
        raise RunLost(claim.name)
    if isinstance(answer, OutcomeKept):
        return answer
    raise refusal(claim.name, answer)


def refusal(
    key: str, answer: KeyHeld | PayloadDiffers | MessageCancelled | AttemptOutdated | None
) -> InFlight | OtherPayload | EffectUnknown | CallCancelled | AttemptSuperseded:
    """Return the error that says why a call is not run."""
    match answer:
        case KeyHeld(message, "unknown"):
            return EffectUnknown(key, message)
        case KeyHeld(message, state, free_in_ms):
            return InFlight(key, message, state, None if free_in_ms is None else free_in_ms / 1000)
        case PayloadDiffers(message):
            return OtherPayload(key, message)
        case MessageCancelled():
            return CallCancelled(key)
        case AttemptOutdated(attempt):
            return AttemptSuperseded(key, attempt)
    return InFlight(key, "?", "waiting", None)  # the deadline came before a first turn in the line


def finish_plan(
    claim: RunClaim, finishing: FinishRun, effect: StoreEffect | None, deadline: float
) -> Plan[RunFinished]:
    """Keep the outcome, with the effect in the same step; raises RunLost when the run is not the holder's any more."""
    operation = (
        finishing
        if effect is None
        else FinishRunWithEffect(finishing, effect.script, tuple(effect.keys), effect.texts())
    )
    answer = yield from perform(Within(operation, deadline))
    if isinstance(answer, RunFinished):
        return answer
    raise RunLost(claim.name)
