"""Deduplication: once means once, and repeats get the answer. For Celery tasks see `segmented.dedup.celery`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup.dedup import AsyncDedup, Dedup
    from segmented.dedup.errors import (
        AttemptSuperseded,
        CallCancelled,
        DedupError,
        EffectUnknown,
        FailedBefore,
        InFlight,
        OtherPayload,
        ResultUnkept,
        RunLost,
    )
    from segmented.dedup.external import AsyncExternalEffect, Done, ExternalEffect, NotDone, StillUnknown
    from segmented.dedup.plans import StoreEffect
    from segmented.dedup.run import AlreadyDone, AsyncRun, Replay, Run

__all__ = [
    "AlreadyDone",
    "AsyncDedup",
    "AsyncExternalEffect",
    "AsyncRun",
    "AttemptSuperseded",
    "CallCancelled",
    "Dedup",
    "DedupError",
    "Done",
    "EffectUnknown",
    "ExternalEffect",
    "FailedBefore",
    "InFlight",
    "NotDone",
    "OtherPayload",
    "Replay",
    "ResultUnkept",
    "Run",
    "RunLost",
    "StillUnknown",
    "StoreEffect",
]

LATE: Final = from_modules(
    {
        "segmented.dedup.dedup": "AsyncDedup Dedup",
        "segmented.dedup.plans": "StoreEffect",
        "segmented.dedup.errors": (
            "AttemptSuperseded CallCancelled DedupError EffectUnknown FailedBefore InFlight "
            "OtherPayload ResultUnkept RunLost"
        ),
        "segmented.dedup.external": "AsyncExternalEffect Done ExternalEffect NotDone StillUnknown",
        "segmented.dedup.run": "AlreadyDone AsyncRun Replay Run",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)
