"""Deduplicated Celery tasks: `@app.task(base=Once, once=unique("{order_id}"))`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup.celery.outbox import (
        Outgoing as Outgoing,
        create_outbox as create_outbox,
        outbox_metadata as outbox_metadata,
        relay_outbox as relay_outbox,
    )
    from segmented.dedup.celery.publication import OnceResult as OnceResult, once_repeated as once_repeated
    from segmented.dedup.celery.rule import (
        OnceRule as OnceRule,
        latest as latest,
        per as per,
        serial as serial,
        unique as unique,
    )
    from segmented.dedup.celery.task import Once as Once

LATE: Final = from_modules(
    {
        "segmented.dedup.celery.outbox": "Outgoing create_outbox outbox_metadata relay_outbox",
        "segmented.dedup.celery.publication": "OnceResult once_repeated",
        "segmented.dedup.celery.rule": "OnceRule latest per serial unique",
        "segmented.dedup.celery.task": "Once",
    }
)
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
