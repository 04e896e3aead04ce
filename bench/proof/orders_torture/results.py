"""The results of `torture orders`. A run that broke a guarantee has no other figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.proof.orders_torture.order_checker import MUST_BE_ZERO
from bench.results import Judged, show_end, show_rows

if TYPE_CHECKING:
    from rich.console import Console

    from bench.proof.orders_torture.messages import Recovery
    from bench.proof.orders_torture.options import OrdersOptions
    from bench.proof.orders_torture.order_checker import Verdict

RECOVERY_ASKED: Final = 10.0
"""Seconds within which another worker should finish a killed worker's orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersResults(Judged):
    """The results of a run."""

    options: OrdersOptions
    verdict: Verdict
    drift: tuple[str, ...]
    """Differences between the pool's counters and its ledger."""
    kills: int
    started: int
    seconds: float
    published: int
    messages_lost: int
    published_again: int
    duplicates_absorbed: int
    works_repeated: int
    recovery: Recovery
    conditions: dict[str, Any]

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        found = [*self.verdict.broken, *self.drift]
        if self.kills < self.options.kill_count:
            found.append(f"only {self.kills:,} of {self.options.kill_count:,} workers could be killed")
        return found

    @property
    def figures(self) -> dict[str, Any]:
        """Return the counts that are not guarantees."""
        verdict, recovery = self.verdict, self.recovery
        return {
            "accepted": verdict.accepted,
            "confirmed": verdict.confirmed,
            "refused": verdict.refused,
            "units_confirmed": verdict.units_confirmed,
            "kills": self.kills,
            "workers_started": self.started,
            "messages_published": self.published,
            "messages_lost_by_the_broker": self.messages_lost,
            "orders_published_again": self.published_again,
            "duplicates_absorbed": self.duplicates_absorbed,
            "steps_repeated": self.works_repeated,
            "seconds": round(self.seconds, 2),
            "orders_per_s": round(self.options.order_count / self.seconds, 1),
            "recovery": {name: round(value, 3) for name, value in asdict(recovery).items()},
            "recovery_asked_s": RECOVERY_ASKED,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "benchmark": "torture-orders",
            "is_kept": self.is_kept,
            "broken": self.broken,
            "must_be_zero": self.verdict.counts,
            "figures": self.figures if self.is_kept else None,
            "conditions": self.conditions,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the table: first the events, then the counts that must be 0."""
        verdict, recovery = self.verdict, self.recovery
        zeros = [(label, f"{verdict.counts[name]:,}") for name, label in MUST_BE_ZERO.items()]
        if not self.is_kept:
            return zeros
        several = f"{recovery.orders_of_several:,}, {recovery.first_max_s:.1f} s"
        return [
            ("orders accepted", f"{verdict.accepted:,}"),
            ("confirmed, refused", f"{verdict.confirmed:,}, {verdict.refused:,}"),
            ("units confirmed, of", f"{verdict.units_confirmed:,}, {self.options.stock():,}"),
            ("workers killed", f"{self.kills:,}"),
            ("messages published", f"{self.published:,}"),
            ("messages that the broker lost", f"{self.messages_lost:,}"),
            ("orders that the sweep published again", f"{self.published_again:,}"),
            ("duplicates absorbed", f"{self.duplicates_absorbed:,}"),
            ("work done again for an order", f"{self.works_repeated:,}"),
            ("orders in the hands of killed workers", f"{recovery.orders:,}"),
            ("recovered within, median and p99", f"{recovery.p50_s:.1f} s, {recovery.p99_s:.1f} s"),
            ("recovered within, all", f"{recovery.max_s:.1f} s (asked: {RECOVERY_ASKED:g} s)"),
            ("met several kills; longest from the first", several),
            ("seconds", f"{self.seconds:.1f}"),
            ("orders/s, kills included", f"{self.options.order_count / self.seconds:,.0f}"),
            *zeros,
        ]

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or lines into a pipe."""
        show_rows(console, ("", f"{self.options.effect}, {self.options.decides}"), self.rows())
        show_end(console, self.broken, self.conditions)
