"""The model of archiving: a closed pool answers reads alone, is read as its keys would be, and is removed."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import PoolArchived, PoolDrifted
from segmented.ledger_lines import record_text, step_of
from segmented.models.archives import ENTRIES_AT_ONCE, RECORD_KEYS, Archiving
from segmented.protocol.archive.wire import not_archivable, not_begun, still_open
from segmented.protocol.carts.wire import LETTERS as CART_LETTERS, refusal_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.models import Order, ShardDirectory
    from segmented.models.archives import PoolKey
    from segmented.protocol.carts.model import CartModel, ModelCart
    from segmented.protocol.outbox.model import OutboxModel
    from segmented.protocol.pool.model_records import Entry, ModelPool

LAYOUT: Final = "1"


class ArchiveModel:
    """Reads and removes the pools of `pools`, with the carts that they keep."""

    def __init__(self, pools: OutboxModel, carts: CartModel, retire: Callable[[ShardDirectory, int], bool]) -> None:
        """Create a model; `retire` archives a copy of a directory and returns False if it is another pool's."""
        self._pools = pools
        self._carts = carts
        self._retire = retire

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.BeginArchive: self.begin,
            op.AbandonArchive: self.abandon,
            op.CompleteExport: self.complete,
            op.ScanRecords: self.scan,
            op.ScanLedger: self.scan_ledger,
            op.RemoveRecords: self.remove_records,
            op.RemovePool: self.remove,
            op.DropOutbox: lambda operation: self._pools.drop_outbox(operation.sku),
            op.ArchiveDirectory: self.archive_directory,
        }

    def begin(self, operation: op.BeginArchive) -> Archiving:
        """Let the pool answer reads alone."""
        pool = self._pools.found(operation.sku)
        if pool.archive is not None and pool.archive.digest is not None:
            return pool.archive
        if not pool.is_closed:
            raise still_open(pool.sku)
        orders, away = len(pool.outbox), len(pool.away)
        carts = len(self._carts.kept(pool.sku)[1])
        if pool.reserved or orders or away or carts:
            raise not_archivable(pool.sku, reserved=pool.reserved, orders=orders, away=away, carts=carts)
        pool.archive = Archiving(operation.sku, pool.epoch)
        return pool.archive

    def abandon(self, operation: op.AbandonArchive) -> None:
        """Let the pool be as it was."""
        pool = self._pools.found(operation.sku)
        if pool.archive is not None and pool.archive.digest is None:
            pool.archive = None

    def complete(self, operation: op.CompleteExport) -> Archiving:
        """Note the archive, if it is the first."""
        pool = self._pools.found(operation.sku)
        if pool.archive is None:
            raise not_begun(pool.sku)
        if pool.archive.digest is None:
            pool.archive = replace(pool.archive, digest=operation.digest, target=operation.target)
        return pool.archive

    # --- reading ---

    def scan(self, operation: op.ScanRecords) -> tuple[int, tuple[tuple[str, str], ...]]:
        """Read all records of a key at once; a pool that is not open has none."""
        if not self._pools.has(operation.sku):
            return 0, ()
        return 0, tuple(self._records(self._pools.found(operation.sku), operation.key))

    def scan_ledger(self, operation: op.ScanLedger) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """Read entries by their ids."""
        if not self._pools.has(operation.sku):
            return ()
        after = tuple(map(int, operation.after_id.split("-")))
        pool = self._pools.found(operation.sku)
        left = [entry for entry in pool.ledger if (entry.epoch, entry.sequence) > after]
        steps = [step_of(tuple(group)) for _, group in groupby(left, key=attrgetter("epoch", "sequence"))]
        return tuple(
            (
                f"{step.epoch}-{step.sequence}",
                (("kind", step.kind), ("at_us", str(step.at_us)), ("lines", step.lines), ("chain", step.chain)),
            )
            for step in steps[: operation.limit]
        )

    def _records(self, pool: ModelPool, key: PoolKey) -> Iterable[tuple[str, str]]:
        carts, unfinished = self._carts.kept(pool.sku)
        match key:
            case "meta":
                return _meta(pool)
            case "stock":
                return ((str(segment), str(units)) for segment, units in enumerate(pool.stock))
            case "orders":
                return ((order_id, _order(pool, order_id)) for order_id in pool.orders)
            case "changes":
                return ((change_id, " ".join(map(str, change))) for change_id, change in pool.changes.items())
            case "transfers":
                return ((f"{note.kind}:{note.other}", f"{note.number} {note.units}") for note in pool.transfers)
            case "entries":
                return ((order_id, _entry(entry)) for order_id, entry in pool.entries.items())
            case "dead":
                return ((order_id, _dead(*dead)) for order_id, dead in pool.dead.items())
            case "carts":
                return ((cart_id, _cart(cart)) for cart_id, cart in carts.items())
            case _:
                kept: dict[str, dict[Any, int]] = {
                    "free": pool.free,
                    "holds": pool.holds,
                    "customers": pool.bought,
                    "outbox": pool.outbox,
                    "unfinished": unfinished,
                }
                return ((str(name), str(value)) for name, value in kept[key].items())

    # --- removing ---

    def remove_records(self, operation: op.RemoveRecords) -> int:
        """Remove records by name, or the oldest entries of the ledger."""
        if operation.sku in self._pools.archived:
            return 0
        pool = self._removing(operation.sku)
        if operation.key == "ledger":
            numbers = sorted({(entry.epoch, entry.sequence) for entry in pool.ledger})[ENTRIES_AT_ONCE:]
            pool.ledger = [entry for entry in pool.ledger if numbers and (entry.epoch, entry.sequence) >= numbers[0]]
            return len(numbers)
        for name in operation.names:
            self._remove(pool, operation.key, name)
        return len(list(self._records(pool, operation.key)))

    def _remove(self, pool: ModelPool, key: PoolKey, name: str) -> None:
        if key == "stock":
            pool.stock = []
        elif key == "transfers":
            kind, _, other = name.partition(":")
            notes = {"sent": pool.sent_to, "away": pool.away, "received": pool.received_from}
            notes[kind].pop(int(other), None)
        elif key in {"carts", "unfinished"}:
            self._carts.remove(pool.sku, name)
        else:
            kept: dict[Any, Any] = getattr(pool, {"customers": "bought"}.get(key, key))
            kept.pop(int(name) if key == "free" else name, None)

    def remove(self, operation: op.RemovePool) -> None:
        """Remove the pool, but for a note."""
        if operation.sku in self._pools.archived:
            return
        pool = self._removing(operation.sku)
        if pool.ledger or any(list(self._records(pool, key)) for key in RECORD_KEYS):
            raise not_begun(pool.sku)
        done = pool.archive or Archiving(pool.sku, pool.epoch)
        note = PoolArchived(pool.sku, pool.epoch, digest=done.digest or "", target=done.target, is_removed=True)
        self._pools.remove(pool.sku, note)

    def archive_directory(self, operation: op.ArchiveDirectory) -> None:
        """Note that the shards are archived."""
        if not self._retire(operation.directory, operation.copy):
            raise PoolDrifted(operation.directory.sku)

    def _removing(self, sku: str) -> ModelPool:
        pool = self._pools.found(sku)
        if pool.archive is None or pool.archive.digest is None:
            raise not_begun(sku)
        return pool


def _joined(*fields: object) -> str:
    return "\t".join("" if field is None else str(field) for field in fields).rstrip("\t")


def _dead(begun: int, at_ms: int, reason: str, order: Order | None) -> str:
    return _joined(begun, at_ms, reason, *((order.quantity, order.customer_id) if order else ()))


def _cart(cart: ModelCart) -> str:
    head = (CART_LETTERS[cart.state], str(cart.deadline_ms), refusal_text(cart.refusal))
    return "\t".join(head) + f"\n{cart.cart.content}"


def _order(pool: ModelPool, order_id: str) -> str:
    text = record_text(pool.orders[order_id])
    return f"v{text[1:]}" if order_id in pool.undone else text


def _entry(entry: Entry) -> str:
    order = entry.order
    asked = (order.quantity, order.customer_id) if order else ("", "")
    return _joined(entry.begun, entry.published, *asked, entry.reason, entry.until_ms or "", entry.worker)


def _meta(pool: ModelPool) -> list[tuple[str, str]]:
    numbers = {
        "layout": LAYOUT,
        "epoch": pool.epoch,
        "segment_count": pool.segment_count,
        "gated": int(pool.gated),
        **{name: getattr(pool, name) for name in ("sequence", "fence", "opened", "available", "reserved", "confirmed")},
        **{name: getattr(pool, name) for name in ("restocked", "withdrawn", "sent", "received", "cursor", "chain")},
        "customer_limit": pool.limit_per_customer or 0,
        "closed": int(pool.is_closed),
        "ledger_start": pool.ledger_start,
        "lost": pool.lost,
    }
    return [(name, str(value)) for name, value in numbers.items()]
