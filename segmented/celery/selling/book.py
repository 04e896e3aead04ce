"""The book of a sale: which orders are decided, which are under way, and which come next. Pure functions."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from segmented.celery.selling.orders_file import FileOrder, OrderKey
    from segmented.models import OrderState


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
        for line in islice(iter(self._next, None), max(0, limit)):
            taken.setdefault(line.sku, []).append(line)
            self._under_way.setdefault(line.sku, {})[line.order.order_id] = None
        return taken

    def _next(self) -> FileOrder | None:
        return self._fresh.popleft() if self._fresh else None

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
        self.outcomes[key] = outcome
        self.counts[outcome.state] += 1
