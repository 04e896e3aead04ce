"""What a sale came to: the report, as a table for people and as an object for machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from segmented.celery.selling.accounts import Accounts
    from segmented.celery.selling.book import Book
    from segmented.celery.selling.choices import Choices


@dataclass(frozen=True, slots=True)
class SaleReport:
    """The counts describe the file's orders at the end of the run."""

    choices: Choices
    book: Book
    accounts: Accounts
    seconds: float
    """From the first look at the servers to the end of the audit."""
    selling_seconds: float
    """Of these, from the start of the workers to the last decision."""
    own_peak_mib: float
    children_peak_mib: dict[str, float]
    workers_restarted: int
    pool_count: int

    @property
    def promise_held(self) -> bool:
        """Is every order decided, nothing oversold, nobody refused wrongly, and every unit explained?"""
        accounts = self.accounts
        return not (accounts.drift or accounts.oversold or accounts.refused_wrongly or self.book.undecided)

    @property
    def confirmed_units(self) -> int:
        """Units of the file's confirmed orders."""
        orders = self.book.orders
        decided = self.book.outcomes.items()
        return sum(orders[order_id].order.quantity for order_id, outcome in decided if outcome.state == "confirmed")

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` writes."""
        counts = self.book.counts
        return {
            "orders": len(self.book.orders),
            "confirmed_orders": counts["confirmed"],
            "confirmed_units": self.confirmed_units,
            "refused_orders": counts["refused"],
            "replayed_orders": self.book.replayed,
            "oversold": self.accounts.oversold,
            "refused_wrongly": self.accounts.refused_wrongly,
            "audit": list(self.accounts.drift) or "clean",
            "sql_units": self.accounts.sql_units,
            "seconds": round(self.seconds, 3),
            "selling_seconds": round(self.selling_seconds, 3),
            "other_orders": counts["cancelled"] + counts["expired"],
            "undecided_orders": self.book.undecided,
            "published_again": self.book.published_again,
            "workers_restarted": self.workers_restarted,
            "peak_memory_mib": round(self.own_peak_mib, 1),
            "children_peak_memory_mib": {name: round(peak, 1) for name, peak in self.children_peak_mib.items()},
            "conditions": {
                "file": self.choices.file.name,
                "stock": self.choices.stock,
                "segments": self.choices.segment_count,
                "pools": self.pool_count,
                "workers": self.choices.worker_count,
            },
        }

    def as_table(self) -> Table:
        """Return what the terminal shows."""
        counts = self.book.counts
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_column()
        for name, value, note in (
            ("orders", len(self.book.orders), ""),
            ("confirmed", counts["confirmed"], f"{self.confirmed_units:,} units"),
            ("refused", counts["refused"], "sold out"),
            ("cancelled or expired", counts["cancelled"] + counts["expired"], ""),
            ("undecided", self.book.undecided, "run the same command again"),
            ("decided before this run", self.book.replayed, ""),
            ("oversold", self.accounts.oversold, "units"),
            ("refused wrongly", self.accounts.refused_wrongly, "orders"),
            ("units in SQL", self.accounts.sql_units, ""),
        ):
            if value or not name.startswith(("cancelled", "undecided", "decided")):
                table.add_row(name, f"{value:,}", note)
        table.add_row("audit", "clean" if not self.accounts.drift else "DRIFT", "")
        table.add_row("seconds", f"{self.seconds:,.1f}", self._speed())
        return table

    def notes(self) -> list[str]:
        """Return the lines below the table."""
        children = ", ".join(f"{name} {peak:,.0f}" for name, peak in self.children_peak_mib.items())
        lines = [f"peak memory in MiB: this command {self.own_peak_mib:,.0f}"]
        if children:
            lines.append(f"peak memory in MiB of the largest process it started, by name: {children}")
        if self.book.published_again:
            lines.append(f"published again, since their messages seemed lost: {self.book.published_again:,} orders")
        if self.workers_restarted:
            lines.append(f"workers started again: {self.workers_restarted:,}")
        return lines + [f"drift: {line}" for line in self.accounts.drift]

    def _speed(self) -> str:
        sold = len(self.book.outcomes) - self.book.replayed
        if not sold or not self.selling_seconds:
            return ""
        return f"of them {self.selling_seconds:,.1f} selling: {sold / self.selling_seconds:,.0f} orders/s"
