"""Checks refusals against the ledger. Each refusal has the number of the change after which it was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.strategies.base import Refused
    from segmented.stock import LedgerFold


def count_wrong(refusals: Iterable[Refused], fold: LedgerFold) -> int:
    """Count the refusals that were decided while enough units were free."""
    return sum(fold.covers(refusal.quantity, refusal.sequence) for refusal in refusals)
