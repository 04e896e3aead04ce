"""A run of the demo: the engine's record, beside the hold of a lone buyer, which gives the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench import sizing
from bench.engine.percentiles import at_ms, decoded

if TYPE_CHECKING:
    from bench.engine.record import Run

MILLISECONDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One strategy: its run, and what was measured before it."""

    run: Run
    lone_hold_ms: float
    """Mean hold of a lone buyer, measured before the sale without contention."""

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.run.cell.strategy

    @property
    def bound_per_s(self) -> float:
        """Orders per second if every lane always worked on one order for as long as a lone buyer does."""
        return sizing.bound_per_s(self.run.lanes, self.lone_hold_ms / MILLISECONDS)

    @property
    def rate(self) -> float | None:
        """Orders per second; None for a run that broke a promise. That of the control counts what it oversold too."""
        run = self.run
        if run.is_control and not self.violations and run.fairness is not None:
            return sum(run.fairness.by_buyer) / run.window_s
        return run.orders_per_s

    @property
    def share_of_bound(self) -> float | None:
        """Return the rate as a share of the bound; None for a run without throughput and for the control."""
        if self.run.orders_per_s is None or self.run.is_control:
            return None
        return round(self.run.orders_per_s / self.bound_per_s, 3)

    @property
    def hold_ms(self) -> float:
        """Mean hold in the sale; 0 if no order was sold in the window."""
        return self.run.times.hold.mean or 0.0

    @property
    def is_sold_out(self) -> bool:
        """Return whether a buyer was refused before the time limit."""
        return self.run.counts.sold_out > 0

    @property
    def violations(self) -> tuple[str, ...]:
        """Return why the run does not count; the control must fail, but must answer every order."""
        if not self.run.is_control:
            return self.run.void
        failed, first = self.run.counts.failed, self.run.counts.first_failure
        return (f"orders without an answer: {failed}, the first: {first or 'cut short'}",) if failed else ()

    def wait_ms(self, percent: float) -> float:
        """Return a percentile of the wait from request to grant, however few orders there were."""
        return at_ms(decoded(self.run.times.wait.encoded), percent)
