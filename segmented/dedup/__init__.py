"""Deduplication: once means once, and repeats get the answer. For Celery tasks see `segmented.dedup.celery`."""

from segmented.dedup.dedup import AsyncDedup, Dedup
from segmented.dedup.effects_in_store import StoreEffect
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
from segmented.dedup.run import AsyncRun, Replay, Run

__all__ = [
    "AsyncDedup",
    "AsyncRun",
    "AttemptSuperseded",
    "CallCancelled",
    "Dedup",
    "DedupError",
    "EffectUnknown",
    "FailedBefore",
    "InFlight",
    "OtherPayload",
    "Replay",
    "ResultUnkept",
    "Run",
    "RunLost",
    "StoreEffect",
]
