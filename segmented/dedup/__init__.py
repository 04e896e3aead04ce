"""Deduplication: work runs once per key; repeats get its result. For Celery tasks see `segmented.dedup.celery`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup.async_dedup import AsyncDedup
    from segmented.dedup.async_run import AsyncRun
    from segmented.dedup.dedup import Dedup
    from segmented.dedup.external import AsyncExternalEffect, Done, ExternalEffect, NotDone, StillUnknown
    from segmented.dedup.plans import StoreEffect
    from segmented.dedup.run import Run
    from segmented.dedup.run_state import Replay
    from segmented.dedup.sql import OnceTable
    from segmented.errors import (
        AlreadyDone,
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
    "OnceTable",
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
        "segmented.dedup.async_dedup": "AsyncDedup",
        "segmented.dedup.async_run": "AsyncRun",
        "segmented.dedup.dedup": "Dedup",
        "segmented.dedup.plans": "StoreEffect",
        "segmented.errors": (
            "AlreadyDone AttemptSuperseded CallCancelled DedupError EffectUnknown FailedBefore InFlight "
            "OtherPayload ResultUnkept RunLost"
        ),
        "segmented.dedup.external": "AsyncExternalEffect Done ExternalEffect NotDone StillUnknown",
        "segmented.dedup.run": "Run",
        "segmented.dedup.run_state": "Replay",
        "segmented.dedup.sql": "OnceTable",
    }
)
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__, __dir__ = late(__name__, LATE)
