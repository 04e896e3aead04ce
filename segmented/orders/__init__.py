"""Orders in SQL: the durable gate, which makes the final decision on every order after Redis has accepted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.orders.archive_table import SqlArchive
    from segmented.orders.async_gate import AsyncGate
    from segmented.orders.auditing import BothReport, audit_both
    from segmented.orders.changing import resize_gated, restock_gated, withdraw_gated
    from segmented.orders.differences import Difference
    from segmented.orders.engine import connect
    from segmented.orders.envelope_report import EnvelopeReport
    from segmented.orders.envelopes import take_envelope
    from segmented.orders.forgetting import ForgetReport, forget
    from segmented.orders.gate import Gate
    from segmented.orders.migrating import Migrated, migrate
    from segmented.orders.opening import open_gated, reopen_gated
    from segmented.orders.rebuilding import rebuild
    from segmented.orders.relaying import RelayReport, ShardRelay, relay
    from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order, tell_pool
    from segmented.orders.standing import Claim
    from segmented.orders.verifying import verify
    from segmented.orders.work_terms import TryLater, WorkTerms

__all__ = [
    "AsyncGate",
    "BothReport",
    "Claim",
    "Difference",
    "EnvelopeReport",
    "ForgetReport",
    "Gate",
    "Migrated",
    "RelayReport",
    "ShardRelay",
    "SqlArchive",
    "TryLater",
    "WorkTerms",
    "audit_both",
    "cancel_order",
    "connect",
    "expire_voided",
    "finish_reserved",
    "forget",
    "migrate",
    "open_gated",
    "rebuild",
    "relay",
    "reopen_gated",
    "resize_gated",
    "restock_gated",
    "take_envelope",
    "take_order",
    "tell_pool",
    "verify",
    "withdraw_gated",
]

LATE: Final = from_modules(
    {
        "segmented.orders.archive_table": "SqlArchive",
        "segmented.orders.async_gate": "AsyncGate",
        "segmented.orders.auditing": "BothReport audit_both",
        "segmented.orders.changing": "resize_gated restock_gated withdraw_gated",
        "segmented.orders.differences": "Difference",
        "segmented.orders.engine": "connect",
        "segmented.orders.envelope_report": "EnvelopeReport",
        "segmented.orders.envelopes": "take_envelope",
        "segmented.orders.forgetting": "ForgetReport forget",
        "segmented.orders.gate": "Gate",
        "segmented.orders.migrating": "Migrated migrate",
        "segmented.orders.opening": "open_gated reopen_gated",
        "segmented.orders.rebuilding": "rebuild",
        "segmented.orders.relaying": "RelayReport ShardRelay relay",
        "segmented.orders.sale": "cancel_order expire_voided finish_reserved take_order tell_pool",
        "segmented.orders.standing": "Claim",
        "segmented.orders.verifying": "verify",
        "segmented.orders.work_terms": "TryLater WorkTerms",
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any other name
    __getattr__, __dir__ = late(__name__, LATE)
