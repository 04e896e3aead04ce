"""Operations that audit a stock pool, and repair it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.keys import cart_keys, shard_keys
from segmented.models.pools import Differing, Inspected, Mended, MendedKind, NumberKind, Outrun, ScannedKey, Sound
from segmented.protocol.base import Operation, ignored
from segmented.protocol.pool import ReadingOrders, keys_of, whole
from segmented.protocol.wire import Call, Reply, pairs_in, plain_call, readable, scan_call, script_call, text
from segmented.values import light_dataclass

if TYPE_CHECKING:
    from segmented.models.pools import PoolKey

AUDIT_KEPT_MS: Final = 86_400_000
SETS: Final = frozenset({"free", "holds", "outbox", "unfinished"})
"""Keys that are sorted sets: their values are scores."""


def key_of(sku: str, key: PoolKey) -> str:
    """Return a key of a pool, by its name."""
    return str(getattr(cart_keys(sku) if key in {"carts", "unfinished"} else shard_keys(sku), key))


@light_dataclass(frozen=True, slots=True)
class InspectOrders(ReadingOrders[Inspected]):
    """Read the raw records of up to 1,000 orders, each with the end of its hold in one step."""

    sku: str
    order_ids: tuple[str, ...]

    def read(self, order_id: str, raw: Reply, hold_until_ms: int | None) -> Inspected:
        return Inspected(order_id, None if raw is None else readable(raw), hold_until_ms)


@light_dataclass(frozen=True, slots=True)
class ScanKey(Operation[tuple[int, tuple[tuple[str, str], ...]]]):
    """Read some names of a key, with their values, and the next cursor (0 at the end).

    A name may appear twice while the sale runs.
    """

    sku: str
    key: ScannedKey
    cursor: int

    def call(self) -> Call:
        command = "ZSCAN" if self.key in SETS else "HSCAN"
        return scan_call(command, key_of(self.sku, self.key), self.cursor)

    def answer(self, reply: Reply) -> tuple[int, tuple[tuple[str, str], ...]]:
        return int(reply[0]), tuple((readable(name), readable(value)) for name, value in pairs_in(reply[1]))


@light_dataclass(frozen=True, slots=True)
class ReadAudit(Operation[str | None]):
    """Read how far an audit in slices has come."""

    sku: str

    def call(self) -> Call:
        return plain_call("GET", shard_keys(self.sku).audit)

    def answer(self, reply: Reply) -> str | None:
        return None if reply is None else readable(reply)


@light_dataclass(frozen=True, slots=True)
class KeepAudit(Operation[None]):
    """Keep how far an audit in slices has come, for a day."""

    sku: str
    progress: str

    def call(self) -> Call:
        return plain_call("SET", shard_keys(self.sku).audit, self.progress, "PX", AUDIT_KEPT_MS)

    answer = ignored


@light_dataclass(frozen=True, slots=True)
class ReadCustomers(Operation[tuple[int, tuple[int | None, ...]]]):
    """Read the units of up to 1,000 customers, and the sequence number of that state.

    None: another program has overwritten the count with a non-integer.
    """

    sku: str
    customer_ids: tuple[str, ...]

    def call(self) -> Call:
        return script_call("read_customers", keys_of(self.sku), *self.customer_ids)

    def answer(self, reply: Reply) -> tuple[int, tuple[int | None, ...]]:
        return whole(reply[1]) or 0, tuple(0 if units is None else whole(units) for units in reply[2])


@light_dataclass(frozen=True, slots=True)
class ReadLedgerStart(Operation[int]):
    """Read the sequence number of the ledger's first valid entry: 1, or a checkpoint after a trim.

    0: another program has overwritten it with a non-integer.
    """

    sku: str

    def call(self) -> Call:
        return plain_call("HGET", shard_keys(self.sku).meta, "ledger_start")

    def answer(self, reply: Reply) -> int:
        return 1 if reply is None else whole(reply) or 0


class _Mending(Operation[Mended | Sound | Differing | Outrun]):
    __slots__ = ()
    sku: str

    def answer(self, reply: Reply) -> Mended | Sound | Differing | Outrun:
        match text(reply[0]):
            case "mended":
                return Mended(int(reply[1]))
            case "sound":
                return Sound()
            case "differing":
                return Differing()
            case _:
                return Outrun()


@light_dataclass(frozen=True, slots=True)
class MendNumber(_Mending):
    """Correct a number to match the ledger, by adding the difference.

    `expected` is the number by the ledger at change `after`; the script adds the effect of later changes. A repeat
    finds nothing to correct.
    """

    sku: str
    kind: NumberKind
    name: str
    """Name of the total, number of the segment, or the customer id."""
    after: int
    expected: int

    def call(self) -> Call:
        return script_call("mend_number", keys_of(self.sku), self.kind, self.name, self.after, self.expected)


@light_dataclass(frozen=True, slots=True)
class MendRecord(_Mending):
    """Correct a record to match the ledger, unless the record or its part of the ledger has changed since the audit.

    An order's hold is corrected too: a reserved order has a hold, which starts again if it was missing; any other order
    has none.
    """

    sku: str
    kind: MendedKind
    record_id: str
    after: int
    """The change up to which the ledger was folded."""
    seen: str | None
    wanted: str | None
    """None: remove the record."""
    hold_ms: int

    def call(self) -> Call:
        seen, wanted = ("-" if found is None else f"+{found}" for found in (self.seen, self.wanted))
        head = (self.kind, self.record_id, self.after)
        return script_call("mend_record", keys_of(self.sku), *head, seen, wanted, self.hold_ms)


@light_dataclass(frozen=True, slots=True)
class MendLedger(_Mending):
    """Remove entries that another program added after the ledger's last change, so that the pool can continue.

    One step removes or copies a bounded number of entries; Outrun means that more remain. Differing means that one of
    them is the pool's own.
    """

    sku: str

    def call(self) -> Call:
        return script_call("mend_ledger", [*keys_of(self.sku), shard_keys(self.sku).ledger_copy])
