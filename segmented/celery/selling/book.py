"""The book of a sale: which orders are decided, which are in progress, and what to publish next. Pure functions.

A message may be lost, so an order that stays undecided is published again. A queue serves in order, so the other orders
show when it is due: `republish_after` seconds after a later order was decided. If no order is decided for that long,
all orders in progress are due. So a long queue alone causes no republishing.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from segmented.celery.selling.orders_file import FileOrder
    from segmented.models import OrderState

PUBLICATIONS_MAX: Final = 5
"""Maximum publications of one order; after that it stays undecided, and the sale reports it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An order's outcome and the ledger entry that records it. A refused order has neither segment nor token."""

    state: OrderState
    segment: int | None
    fencing_token: int | None
    sequence: int


@dataclass(slots=True)
class _Publication:
    number: int
    times: int
    overtaken_at: float | None = None


class Book:
    """The state of all orders in one run."""

    def __init__(self, orders: Mapping[str, FileOrder], *, republish_after: float) -> None:
        """Create a book in which no order is decided or published."""
        self.orders = orders
        self.outcomes: dict[str, Outcome] = {}
        self.counts: Counter[OrderState] = Counter()
        self.replayed = 0
        """Orders that were decided before this run."""
        self.published_again = 0
        self._republish_after = republish_after
        self._fresh = deque(orders)
        self._under_way: dict[str, _Publication] = {}
        self._under_way_by_sku: Counter[str] = Counter()
        self._number = 0
        self._overtaken_up_to = 0
        self._changed_at = 0.0

    @property
    def undecided(self) -> int:
        """Orders without an outcome."""
        return len(self.orders) - len(self.outcomes)

    @property
    def under_way(self) -> int:
        """Orders that were published and have no outcome yet."""
        return len(self._under_way)

    @property
    def is_over(self) -> bool:
        """Return whether no order is left to publish or to wait for."""
        return not self._fresh and not self._under_way

    def skus_under_way(self) -> list[str]:
        """Return the pools that still have orders to decide."""
        return [sku for sku, count in self._under_way_by_sku.items() if count]

    def begin(self, decided: Mapping[str, Outcome]) -> None:
        """Add the orders that were decided before this run."""
        for order_id, outcome in decided.items():
            self._decide(order_id, outcome)
        self.replayed = len(self.outcomes)
        self._fresh = deque(order_id for order_id in self.orders if order_id not in self.outcomes)

    def fresh(self, limit: int, now: float) -> list[FileOrder]:
        """Take up to `limit` orders to publish for the first time."""
        taken = [self._fresh.popleft() for _ in range(max(0, min(limit, len(self._fresh))))]
        for order_id in taken:
            self._note_published(order_id, times=1)
        if taken:
            self._changed_at = now
        return [self.orders[order_id] for order_id in taken]

    def decide(self, found: Iterable[tuple[str, Outcome]], now: float) -> int:
        """Record outcomes, and return how many were new; outcomes of foreign orders change nothing."""
        new = 0
        for order_id, outcome in found:
            if order_id not in self.orders or order_id in self.outcomes:
                continue
            self._decide(order_id, outcome)
            new += 1
            publication = self._take_back(order_id)
            if publication is not None:
                self._overtaken_up_to = max(self._overtaken_up_to, publication.number)
        if new:
            self._changed_at = now
        return new

    def overdue(self, now: float) -> list[FileOrder]:
        """Take the orders to publish again. An order that reached the maximum is given up instead."""
        again = []
        for order_id in self._due(now):
            publication = self._take_back(order_id)
            if publication is not None and publication.times < PUBLICATIONS_MAX:
                self._note_published(order_id, times=publication.times + 1)
                again.append(self.orders[order_id])
        if again:
            self.published_again += len(again)
            self._changed_at = now
        return again

    def _due(self, now: float) -> list[str]:
        if self._under_way and now - self._changed_at >= self._republish_after:
            return list(self._under_way)
        due = []
        for order_id, publication in self._under_way.items():  # in the order of their numbers
            if publication.number > self._overtaken_up_to:
                break
            if publication.overtaken_at is None:
                publication.overtaken_at = now
            elif now - publication.overtaken_at >= self._republish_after:
                due.append(order_id)
        return due

    def _note_published(self, order_id: str, *, times: int) -> None:
        self._number += 1
        self._under_way[order_id] = _Publication(self._number, times)
        self._under_way_by_sku[self.orders[order_id].sku] += 1

    def _take_back(self, order_id: str) -> _Publication | None:
        publication = self._under_way.pop(order_id, None)
        if publication is not None:
            self._under_way_by_sku[self.orders[order_id].sku] -= 1
        return publication

    def _decide(self, order_id: str, outcome: Outcome) -> None:
        self.outcomes[order_id] = outcome
        self.counts[outcome.state] += 1
