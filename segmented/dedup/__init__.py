"""Deduplication: once means once, and repeats get the answer. For Celery tasks see `segmented.dedup.celery`."""

from segmented.dedup.dedup import AsyncDedup, Dedup
from segmented.dedup.effects_in_store import StoreEffect
from segmented.dedup.errors import (
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
from segmented.dedup.external import AsyncExternalEffect, Done, ExternalEffect, NotDone, StillUnknown
from segmented.dedup.run import AsyncRun, Replay, Run

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
