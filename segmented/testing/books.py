"""The pools of one test, and the check that their books balance at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.models.ids import plural

if TYPE_CHECKING:
    from segmented.orders import Gate
    from segmented.stock import Pool

NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Book:
    """A pool, with its order database if it has one."""

    pool: Pool
    gate: Gate | None

    def faults(self) -> list[str]:
        """Return the faults, one sentence each. Orders in progress are not faults."""
        report = self.pool.audit()
        found = [str(drift) for drift in report.drift[:NAMED_MAX]]
        if report.drift_count > NAMED_MAX:
            found.append(f"and {report.drift_count - NAMED_MAX} more")
        if report.oversold:
            found.append(f"{report.oversold} {plural(report.oversold, 'unit')} oversold")
        if report.refused_wrongly:
            orders = plural(report.refused_wrongly, "order")
            found.append(f"{report.refused_wrongly} {orders} refused although there were enough units")
        if self.gate is not None:
            sold = self.gate.totals(self.pool.sku).sold
            state = self.pool.state()
            if not state.confirmed <= sold <= state.confirmed + state.reserved:
                found.append(
                    f"the order database has {sold} {plural(sold, 'unit')} sold, the pool {state.confirmed} confirmed "
                    f"and {state.reserved} reserved"
                )
        return found


def unbalanced(books: list[Book]) -> str:
    """Return one text about all pools whose books do not balance, or nothing."""
    faults = {book.pool.sku: book.faults() for book in books}
    return "\n".join(
        f"the books of pool {sku!r} do not balance: {'; '.join(found)}" for sku, found in faults.items() if found
    )
