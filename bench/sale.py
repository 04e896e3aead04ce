"""One sale as its buyers saw it, in local seconds, and the record of the run. Independent of Locust.

The record is built from the buyers' notes and the servers' state.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench import sizing
from bench.record import RunRecord, waits
from bench.strategies.base import Refused, RefusedByGate, Sold
from segmented.models import Order

if TYPE_CHECKING:
    from bench.assignment import Assignment
    from bench.cpu import CpuReading
    from bench.strategies.base import Answer, Strategy, Verdict

FAILED_MAX: Final = 100
"""Number of failed orders after which the sale is given up: something is broken, not slow."""
MILLISECONDS: Final = 1_000


@dataclass(slots=True)
class Sale:
    """The events of a sale; all buyers write to it."""

    strategy: Strategy
    order_count: int = 0
    sold: list[tuple[float, float, float]] = field(default_factory=list)
    """(asked, granted, done) of each acknowledged order."""
    refusals: list[Refused] = field(default_factory=list)
    refused_by_gate: int = 0
    failures: list[str] = field(default_factory=list)
    sold_out_at: float | None = None
    is_closing: bool = False
    """Whether buyers stop ordering."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set at the first refusal, or after too many failures."""

    def next_order(self) -> Order:
        """Return an order with the next number."""
        self.order_count += 1
        return Order(str(self.order_count), 1)

    @property
    def unfinished_count(self) -> int:
        """Orders that began and never ended; 0 after all buyers have stopped normally."""
        ended = len(self.sold) + len(self.refusals) + self.refused_by_gate + len(self.failures)
        return self.order_count - ended

    def note(self, answer: Answer, asked_at: float, done_at: float) -> None:
        """Record an answer."""
        match answer:
            case Sold(granted_at):
                self.sold.append((asked_at, granted_at, done_at))
            case Refused():
                self.refusals.append(answer)
                if self.sold_out_at is None:
                    self.sold_out_at = done_at
                    self.over.set()
            case RefusedByGate():
                self.refused_by_gate += 1

    def note_failure(self, error: Exception) -> None:
        """Record an error; give up after many."""
        self.failures.append(f"{type(error).__name__}: {error}")
        if len(self.failures) >= FAILED_MAX:
            self.over.set()


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a sale."""

    begin: float
    end: float
    cpu: CpuReading
    """Cores used."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.begin


def summarise(
    assignment: Assignment,
    strategy: Strategy,
    stock: int,
    sale: Sale,
    window: Window,
    verdict: Verdict,
    *,
    alone: float,
) -> RunRecord:
    """Build the record; `alone` is a lone buyer's hold in seconds."""
    measured = [order for order in sale.sold if window.begin <= order[2] <= window.end]
    warm_up = sizing.warm_up(assignment.seconds)
    hold = strategy.mean_hold(warm_up)
    broken = failures(sale) if strategy.is_control else (*violations(verdict, sale), *failures(sale))
    return RunRecord(
        strategy=strategy.name,
        is_control=strategy.is_control,
        segments=strategy.segments,
        buyers=assignment.buyers,
        hold_ms=round(hold * MILLISECONDS, 3),
        lone_hold_ms=round(alone * MILLISECONDS, 3),
        extra_hold_ms=round(assignment.extra_hold * MILLISECONDS, 3),
        orders_per_s=None if broken else round(len(measured) / window.seconds, 2),
        bound_per_s=round(sizing.bound_per_s(strategy.lanes, alone), 2),
        stock=stock,
        sold=verdict.sold,
        sold_in_sql=verdict.sold if verdict.sold_in_sql is None else verdict.sold_in_sql,
        oversold=max(verdict.oversold_in_redis, verdict.oversold_in_sql),
        oversold_in_redis=verdict.oversold_in_redis,
        oversold_in_sql=verdict.oversold_in_sql,
        refused=len(sale.refusals),
        refused_wrongly=verdict.refused_wrongly,
        refused_by_gate=sale.refused_by_gate,
        failed=len(sale.failures),
        is_sold_out=sale.sold_out_at is not None,
        wait_ms=waits(granted_at - asked_at for asked_at, granted_at, _ in measured),
        orders_measured=len(measured),
        warm_up_s=warm_up,
        window_s=round(window.seconds, 3),
        generator_cpu=round(window.cpu.generator, 3),
        redis_cpu=round(window.cpu.redis, 3),
        database_cpu=None if window.cpu.database is None else round(window.cpu.database, 3),
        machine_cpu=round(window.cpu.machine, 3),
        others_cpu=round(window.cpu.others, 3),
        audit=verdict.audit,
        violations=broken,
    )


def failures(sale: Sale) -> tuple[str, ...]:
    """Return sentences on orders that failed or were cut short; the figures leave them out."""
    first = next(iter(sale.failures), "")
    found = {
        f"orders that ended in an error: {len(sale.failures)}, the first in {first}": sale.failures,
        f"orders that were cut short: {sale.unfinished_count}": sale.unfinished_count,
    }
    return tuple(sentence for sentence, is_broken in found.items() if is_broken)


def violations(verdict: Verdict, sale: Sale) -> tuple[str, ...]:
    """Return the broken guarantees; a run that broke one has no throughput."""
    found = {
        f"oversold by {verdict.oversold_in_redis} units in Redis": verdict.oversold_in_redis,
        f"oversold by {verdict.oversold_in_sql} units in SQL": verdict.oversold_in_sql,
        f"orders refused while their units were free: {verdict.refused_wrongly}": verdict.refused_wrongly,
        f"Redis confirmed {verdict.sold} units and SQL {verdict.sold_in_sql}": verdict.sold != verdict.sold_in_sql,
        f"acknowledged {len(sale.sold)} orders and confirmed {verdict.sold}": len(sale.sold) > verdict.sold,
        f"the audit is not clean: {verdict.audit}": verdict.audit != "clean",
    }
    return tuple(sentence for sentence, is_broken in found.items() if is_broken)
