"""The progress of `torture orders`, and its results. A run that broke a guarantee has no other figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.proof.orders_torture.order_checker import MUST_BE_ZERO
from bench.results import show_torture

if TYPE_CHECKING:
    from rich.console import Console

    from bench.proof.orders_torture.messages import Recovery
    from bench.proof.orders_torture.options import OrdersOptions
    from bench.proof.orders_torture.order_checker import Verdict
    from segmented.clock import Clock

RECOVERY_ASKED: Final = 10.0
"""Seconds within which another worker should finish a killed worker's orders."""
LINE_SECONDS: Final = 10.0
ESTIMATE_SHARE: Final = 0.03
"""Share of the orders that must be done before the time left is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersResults:
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
    def is_kept(self) -> bool:
        """Return whether every guarantee held."""
        return not self.broken

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
        show_torture(
            console, f"{self.options.effect}, {self.options.decides}", self.rows(), self.broken, self.conditions
        )


class RunDisplay:
    """Shows the progress of a run. Kills are spread evenly over the orders, so their rate gives the time left."""

    def __init__(self, console: Console, total: int, kills: int, clock: Clock) -> None:
        """Create a display that shows nothing yet."""
        self._console = console
        self._total = total
        self._kills = kills
        self._clock = clock
        self._began: float | None = None
        self._line_due = clock.now() + LINE_SECONDS
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total, more="")

    def __enter__(self) -> Self:
        """Start the display."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar from the terminal."""
        self._progress.stop()

    def phase(self, name: str) -> None:
        """Show the current phase."""
        self._progress.update(self._task, description=name, more="")
        if not self._console.is_terminal:
            self._console.print(name, highlight=False, soft_wrap=True)

    def show(self, done: int, kills: int) -> None:
        """Show how many orders are done, and how many workers have been killed."""
        now = self._clock.now()
        self._began = self._began or now
        more = f"{kills:,} of {self._kills:,} kills{left(done, self._total, now - self._began)}"
        self._progress.update(self._task, completed=done, more=more)
        if not self._console.is_terminal and now >= self._line_due:
            self._line_due = now + LINE_SECONDS
            self._console.print(f"{done:,} of {self._total:,} orders, {more}", highlight=False, soft_wrap=True)


def left(done: int, total: int, seconds: float) -> str:
    """Return the estimated time left as text, or nothing if it is too early."""
    if done < total * ESTIMATE_SHARE or not done:
        return ""
    rest = seconds * (total - done) / done
    return f", about {rest / 60:.0f} min left" if rest >= 120 else f", about {rest:.0f} s left"  # noqa: PLR2004  # two minutes
