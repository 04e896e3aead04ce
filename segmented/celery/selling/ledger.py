"""Learning outcomes: from the records what was decided before, from the ledger what is decided now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.celery.selling.book import Outcome
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from segmented.celery.selling.orders_file import FileOrder, OrdersFile
    from segmented.models import LedgerEntry, OrderRecord, OrderState
    from segmented.stores.redis import RedisStore

PAGE: Final = 1_000
DECIDED: Final[Mapping[str, OrderState]] = {
    "confirmed": "confirmed",
    "cancelled": "cancelled",
    "expired": "expired",
    "refused": "refused",
}
"""Ledger entry -> the state it ends in. What is not here, such as `reserved`, leaves the order undecided."""


class Follower:
    """Reads one pool's ledger on from where it last stopped."""

    def __init__(self, store: RedisStore, sku: str, *, after: int) -> None:
        """Begin after a sequence number."""
        self._store = store
        self._sku = sku
        self._after = after

    def read(self) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcomes that were written since."""
        while True:
            entries = self._store.execute(op.ReadLedger(self._sku, self._after, PAGE))
            if not entries:
                return
            self._after = entries[-1].sequence
            yield from (found for entry in entries if (found := _outcome(entry)))
            if len({entry.sequence for entry in entries}) < PAGE:
                return


def read_decided(store: RedisStore, file: OrdersFile, sku: str) -> Iterator[tuple[str, Outcome]]:
    """Yield the orders of the file that have an outcome. Raises InvalidInput for one with other content in the pool."""
    lines = [line for line in file.orders.values() if line.sku == sku]
    for first in range(0, len(lines), PAGE):
        page = lines[first : first + PAGE]
        records = store.execute(op.ReadOrders(sku, tuple(line.order.order_id for line in page)))
        for line, record in zip(page, records, strict=True):
            if record is None:
                continue
            _check_same(file, line, record)
            if record.state in DECIDED:
                segment = record.segment if record.segment >= 0 else None
                yield record.order_id, Outcome(record.state, segment, record.fencing_token, record.sequence)


def _outcome(entry: LedgerEntry) -> tuple[str, Outcome] | None:
    state = DECIDED.get(entry.kind)
    if state is None or entry.order_id is None:
        return None
    return entry.order_id, Outcome(state, entry.segment, entry.fencing_token, entry.sequence)


def _check_same(file: OrdersFile, line: FileOrder, record: OrderRecord) -> None:
    if not record.is_of(line.order):
        here = f"quantity {line.order.quantity} and customer {line.order.customer_id!r}"
        there = f"quantity {record.asked} and customer {record.customer_id!r}"
        order_id = line.order.order_id
        message = f"{file.path}, line {line.line}: order_id {order_id!r} has {here}, but the pool knows it with {there}"
        raise InvalidInput(message)
