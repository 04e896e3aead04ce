"""Orders in SQL: the durable gate, which makes the final decision on every order after Redis has accepted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.orders.async_gate import AsyncGate as AsyncGate
    from segmented.orders.auditing import BothReport as BothReport, Difference as Difference, audit_both as audit_both
    from segmented.orders.deciding import Claim as Claim
    from segmented.orders.engine import connect as connect
    from segmented.orders.envelopes import (
        Decline as Decline,
        EnvelopeReport as EnvelopeReport,
        TryLater as TryLater,
        WorkTerms as WorkTerms,
        take_envelope as take_envelope,
    )
    from segmented.orders.forgetting import ForgetReport as ForgetReport, forget as forget
    from segmented.orders.gate import Gate as Gate
    from segmented.orders.migrating import Migrated as Migrated, migrate as migrate
    from segmented.orders.opening import reopen_gated as reopen_gated
    from segmented.orders.pruning import (
        EraseReport as EraseReport,
        PruneReport as PruneReport,
        erase_customer as erase_customer,
        prune as prune,
    )
    from segmented.orders.rebuilding import rebuild as rebuild
    from segmented.orders.relaying import RelayReport as RelayReport, ShardRelay as ShardRelay, relay as relay
    from segmented.orders.sale import tell_pool as tell_pool
    from segmented.orders.verifying import verify as verify

LATE: Final = from_modules(
    {
        "segmented.orders.async_gate": "AsyncGate",
        "segmented.orders.auditing": "BothReport Difference audit_both",
        "segmented.orders.engine": "connect",
        "segmented.orders.envelopes": "Decline EnvelopeReport TryLater WorkTerms take_envelope",
        "segmented.orders.forgetting": "ForgetReport forget",
        "segmented.orders.gate": "Gate",
        "segmented.orders.migrating": "Migrated migrate",
        "segmented.orders.opening": "reopen_gated",
        "segmented.orders.pruning": "EraseReport PruneReport erase_customer prune",
        "segmented.orders.rebuilding": "rebuild",
        "segmented.orders.relaying": "RelayReport ShardRelay relay",
        "segmented.orders.sale": "tell_pool",
        "segmented.orders.deciding": "Claim",
        "segmented.orders.verifying": "verify",
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
