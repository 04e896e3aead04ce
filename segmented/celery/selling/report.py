"""The book of a sale, and its output: its progress, its report, its accounts, and its result files.

The accounts are the audit of every pool, compared with the order database. The report is a table or JSON. Progress is a
bar on a terminal, and a plain line every few seconds elsewhere.
"""

from __future__ import annotations

import csv
from collections import Counter, deque
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from segmented.files import whole_file
from segmented.models.ids import counted, plural
from segmented.orders import audit_both

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console

    from segmented.celery.selling.orders_file import FileOrder, OrderKey
    from segmented.celery.selling.servers import Choices
    from segmented.clock import Clock
    from segmented.models import OrderState
    from segmented.orders import Gate
    from segmented.stock import Pool

NAMED_MAX: Final = 100
"""Maximum number of differences to list, of each kind and pool."""
COLUMNS: Final = ("order_id", "sku", "quantity", "outcome", "segment", "fencing_token", "sequence")
UNDECIDED: Final = "undecided"
LINE_SECONDS: Final = 2.0
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a field that spreadsheets compute."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An order's outcome and the ledger entry that records it. A refused order has neither segment nor token."""

    state: OrderState
    segment: int | None
    fencing_token: int | None
    sequence: int


class Book:
    """The state of all orders in one run."""

    def __init__(self, orders: Mapping[OrderKey, FileOrder]) -> None:
        self.orders = orders
        self.outcomes: dict[OrderKey, Outcome] = {}
        self.counts: Counter[OrderState] = Counter()
        self.replayed = 0
        """Orders that were decided before this run."""
        self.published_again = 0
        """Orders that were published again, since their message seemed lost or its worker dead."""
        self._fresh = deque(orders.values())
        self._under_way: dict[str, dict[str, None]] = {}
        """Sku -> ids of its orders under way, in the order of their submission."""

    @property
    def undecided(self) -> int:
        """Orders without an outcome."""
        return len(self.orders) - len(self.outcomes)

    @property
    def under_way(self) -> int:
        """Orders that were submitted and have no outcome yet."""
        return sum(map(len, self._under_way.values()))

    @property
    def is_over(self) -> bool:
        """Return whether no order is left to submit or to wait for."""
        return not self._fresh and not self._under_way

    def skus_under_way(self) -> list[str]:
        """Return the pools that still have orders to decide."""
        return [*self._under_way]

    def begin(self, decided: Mapping[OrderKey, Outcome]) -> None:
        """Add the orders that were decided before this run."""
        for key, outcome in decided.items():
            self._decide(key, outcome)
        self.replayed = len(self.outcomes)
        self._fresh = deque(line for key, line in self.orders.items() if key not in self.outcomes)

    def fresh(self, limit: int) -> dict[str, list[FileOrder]]:
        """Take up to `limit` orders to submit, by sku."""
        taken: dict[str, list[FileOrder]] = {}
        for _ in range(min(limit, len(self._fresh))):
            line = self._fresh.popleft()
            taken.setdefault(line.sku, []).append(line)
            self._under_way.setdefault(line.sku, {})[line.order.order_id] = None
        return taken

    def decide(self, found: Iterable[tuple[OrderKey, Outcome]]) -> int:
        """Record outcomes, and return how many were new; outcomes of foreign orders change nothing."""
        new = 0
        for key, outcome in found:
            if key not in self.orders or key in self.outcomes:
                continue
            self._decide(key, outcome)
            sku, order_id = key
            self.give_up(sku, (order_id,))
            new += 1
        return new

    def give_up(self, sku: str, order_ids: Iterable[str]) -> None:
        """Wait no longer for these orders; one of them may still be decided."""
        waiting = self._under_way.get(sku, {})
        for order_id in order_ids:
            waiting.pop(order_id, None)
        if not waiting:
            self._under_way.pop(sku, None)

    def _decide(self, key: OrderKey, outcome: Outcome) -> None:
        assert key not in self.outcomes, "an order is decided once"
        self.outcomes[key] = outcome
        self.counts[outcome.state] += 1


@dataclass(frozen=True, slots=True)
class SaleReport:
    """The counts describe the file's orders at the end of the run."""

    choices: Choices
    book: Book
    accounts: Accounts
    seconds: float
    """From the first contact with the servers to the end of the audit."""
    selling_seconds: float
    """The part from the start of the workers to the last decision."""
    workers_restarted: int

    @property
    def promise_held(self) -> bool:
        """Return whether every order is decided, none is oversold or wrongly refused, and every unit is explained."""
        accounts = self.accounts
        return not (accounts.drift or accounts.oversold or accounts.refused_wrongly or self.book.undecided)

    @property
    def confirmed_units(self) -> int:
        """Units of the file's confirmed orders."""
        orders = self.book.orders
        decided = self.book.outcomes.items()
        return sum(orders[key].order.quantity for key, outcome in decided if outcome.state == "confirmed")

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
            "conditions": {
                "file": self.choices.file.name,
                "stock": self.choices.stock,
                "segments": self.choices.segment_count,
                "pools": len({sku for sku, _ in self.book.orders}),
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
            ("confirmed", counts["confirmed"], counted(self.confirmed_units, "unit")),
            ("refused", counts["refused"], "sold out"),
            ("cancelled or expired", counts["cancelled"] + counts["expired"], ""),
            ("undecided", self.book.undecided, "run the same command again"),
            ("decided before this run", self.book.replayed, ""),
            ("oversold", self.accounts.oversold, plural(self.accounts.oversold, "unit")),
            ("refused wrongly", self.accounts.refused_wrongly, plural(self.accounts.refused_wrongly, "order")),
            ("units in SQL", self.accounts.sql_units, ""),
        ):
            if value or not name.startswith(("cancelled", "undecided", "decided")):
                table.add_row(name, f"{value:,}", note)
        table.add_row("audit", "clean" if not self.accounts.drift else "DRIFT", "")
        table.add_row("seconds", f"{self.seconds:,.1f}", self._speed())
        return table

    def notes(self) -> list[str]:
        """Return the lines below the table."""
        lines = []
        if self.book.published_again:
            again = counted(self.book.published_again, "order")
            lines.append(f"published again, since their messages seemed lost: {again}")
        if self.workers_restarted:
            lines.append(f"workers started again: {self.workers_restarted:,}")
        return lines + [f"drift: {line}" for line in self.accounts.drift]

    def _speed(self) -> str:
        sold = len(self.book.outcomes) - self.book.replayed
        if not sold or not self.selling_seconds:
            return ""
        return f"of them {self.selling_seconds:,.1f} selling: {sold / self.selling_seconds:,.0f} orders/s"


@dataclass(frozen=True, slots=True)
class Accounts:
    """Findings. Drift lists every place where records, ledger and database disagree; there should be none."""

    drift: tuple[str, ...]
    oversold: int
    refused_wrongly: int
    sql_units: int
    """Units of the file's orders that the database has confirmed."""


def settle_accounts(pools: Mapping[str, Pool], gate: Gate, book: Book) -> Accounts:
    """Audit every pool alone and beside the order database, and compare what this run reports, order by order."""
    drift: list[str] = []
    oversold = refused_wrongly = sql_units = 0
    for sku, pool in pools.items():
        audit, both = pool.audit(), audit_both(pool, gate)
        sold = dict(gate.each_confirmed(sku))
        wrong = [*_reported_wrongly(sku, book, sold)]
        findings = (audit.drift, audit.drift_count), (both.differences, both.difference_count), (wrong, len(wrong))
        for found, count in findings:
            drift += map(str, found[:NAMED_MAX])
            if count > NAMED_MAX:
                drift.append(f"and {count - NAMED_MAX} more of {sku!r}")
        oversold += max(audit.oversold, sum(sold.values()) - audit.state.stocked, 0)
        refused_wrongly += audit.refused_wrongly
        sql_units += sum(units for order_id, units in sold.items() if (sku, order_id) in book.orders)
    return Accounts(tuple(drift), oversold, refused_wrongly, sql_units)


def _reported_wrongly(sku: str, book: Book, sold: Mapping[str, int]) -> Iterator[str]:
    """Compare the outcomes that this run followed with the order database, independently of the audits."""
    for key, outcome in book.outcomes.items():
        units = sold.get(key[1], 0)
        if key[0] == sku and units != (book.orders[key].order.quantity if outcome.state == "confirmed" else 0):
            yield f"order {key[1]} is {outcome.state}, but the order database has {counted(units, 'unit')} confirmed"


def write_results(path: Path | None, book: Book) -> None:
    """Write one line per order, in the file's order, if a file is asked for."""
    if path is None:
        return
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for key, line in book.orders.items():
            outcome = book.outcomes.get(key)
            found = (UNDECIDED, None, None, None) if outcome is None else astuple(outcome)
            writer.writerow((_plain(line.order.order_id), _plain(line.sku), line.order.quantity, *found))


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: one that begins like one gets an apostrophe before it."""
    return f"'{text}" if text.startswith(FORMULAS) else text


class Screen:
    """Shows the progress of a sale."""

    def __init__(self, console: Console, book: Book, clock: Clock) -> None:
        self._console = console
        self._book = book
        self._clock = clock
        self._line_due = clock.now() + LINE_SECONDS
        self._progress = Progress(
            TextColumn("selling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("selling", total=len(book.orders), counts="")

    def show(self) -> None:
        """Show the progress, if an update is due."""
        counts = self._book.counts
        done = len(self._book.outcomes)
        is_begun = done > self._book.replayed
        text = (
            f"{counts['confirmed']:,} confirmed, {counts['refused']:,} refused" if is_begun else "workers are starting"
        )
        if self._console.is_terminal:
            self._progress.update(self._task, completed=done, counts=text)
        elif self._clock.now() >= self._line_due:
            self._line_due = self._clock.now() + LINE_SECONDS
            orders = counted(len(self._book.orders), "order")
            self._console.print(f"{done:,} of {orders} decided: {text}", highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""
        self._progress.stop()
