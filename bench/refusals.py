"""Were refusals right? Each carries the number of the change after which it was decided; the ledger knows the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.strategies.base import Refused
    from segmented.stock import LedgerFold


def count_wrong(refusals: Iterable[Refused], fold: LedgerFold) -> int:
    """Count those that were decided while the units free covered the quantity."""
    return sum(fold.covers(refusal.quantity, refusal.sequence) for refusal in refusals)
