"""Orders in SQL: the durable gate, which decides every order's fate once Redis has said yes."""

from segmented.orders.changing import resize_gated, restock_gated, withdraw_gated
from segmented.orders.engine import connect
from segmented.orders.envelopes import EnvelopeReport, take_envelope
from segmented.orders.gate import Gate
from segmented.orders.opening import open_gated, reopen_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order
from segmented.orders.standing import Claim
from segmented.orders.work_terms import TryLater, WorkTerms

__all__ = [
    "Claim",
    "EnvelopeReport",
    "Gate",
    "TryLater",
    "WorkTerms",
    "cancel_order",
    "connect",
    "expire_voided",
    "finish_reserved",
    "open_gated",
    "reopen_gated",
    "resize_gated",
    "restock_gated",
    "take_envelope",
    "take_order",
    "withdraw_gated",
]
