"""Deduplication: work runs once per key; repeats get its result. For Celery tasks see `segmented.dedup.celery`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup.dedup import AsyncDedup as AsyncDedup, Dedup as Dedup, once_per as once_per
    from segmented.dedup.run import AsyncRun as AsyncRun, Replay as Replay, Run as Run, StoreEffect as StoreEffect
    from segmented.dedup.sql import OnceTable as OnceTable
    from segmented.dedup.sql_records import AsyncSqlRecords as AsyncSqlRecords, SqlRecords as SqlRecords
    from segmented.errors import (
        AlreadyDone as AlreadyDone,
        AttemptSuperseded as AttemptSuperseded,
        CallCancelled as CallCancelled,
        DedupError as DedupError,
        EffectUnknown as EffectUnknown,
        FailedBefore as FailedBefore,
        InFlight as InFlight,
        OtherPayload as OtherPayload,
        ResultUnkept as ResultUnkept,
        RunLost as RunLost,
    )

LATE: Final = from_modules(
    {
        "segmented.dedup.dedup": "AsyncDedup Dedup once_per",
        "segmented.errors": (
            "AlreadyDone AttemptSuperseded CallCancelled DedupError EffectUnknown FailedBefore InFlight "
            "OtherPayload ResultUnkept RunLost"
        ),
        "segmented.dedup.run": "AsyncRun Replay Run StoreEffect",
        "segmented.dedup.sql": "OnceTable",
        "segmented.dedup.sql_records": "AsyncSqlRecords SqlRecords",
    }
)
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
