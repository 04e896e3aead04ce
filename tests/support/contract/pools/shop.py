"""A pool under test: short calls for its operations, and an audit at the end."""

from collections.abc import Collection, Iterable
from typing import Final

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.keys import ShardKeys, shard_keys
from segmented.models import (
    AlreadyOpen,
    Closed,
    Granted,
    LedgerEntry,
    Lost,
    Opened,
    Order,
    OrderRecord,
    PoolClosed,
    PoolState,
    Refusal,
    Renewed,
    Reserved,
    Resized,
    Restocked,
    Settled,
    Superseded,
    Taken,
    TooFew,
    Verified,
)
from segmented.stock.audit import audit_plan
from tests.fixtures.stores import Side

LONG_MS: Final = 600_000
SHORT_MS: Final = 20
SHORT_PASSES: Final = 0.035


class Shop:
    """One pool of one store."""

    def __init__(self, side: Side, sku: str) -> None:
        self.side, self.sku = side, sku

    @property
    def keys(self) -> ShardKeys:
        return shard_keys(self.sku)

    def open(
        self, stock: int, segments: int, *, gated: bool = False, epoch: int = 1, limit_per_customer: int | None = None
    ) -> Opened | AlreadyOpen:
        return self.side.execute(op.OpenPool(self.sku, stock, segments, gated, epoch, limit_per_customer))

    def reserve(
        self,
        order_id: str,
        quantity: int = 1,
        *,
        hold_ms: int = LONG_MS,
        customer_id: str | None = None,
        partial: bool = False,
    ) -> Taken:
        return self.side.execute(op.Reserve(self.sku, Order(order_id, quantity, customer_id), hold_ms, partial))

    def reserve_many(
        self, orders: Iterable[Order], *, hold_ms: int = LONG_MS, partial: bool = False
    ) -> tuple[Taken | SegmentedError, ...]:
        return self.side.execute(op.ReserveMany(self.sku, tuple(orders), hold_ms, partial))

    def reserved(self, order_id: str, quantity: int = 1, *, hold_ms: int = LONG_MS) -> Reserved:
        """Reserve, where anything else would be a mistake of the test."""
        answer = self.reserve(order_id, quantity, hold_ms=hold_ms)
        assert isinstance(answer, Reserved), answer
        return answer

    def grant(
        self,
        order_id: str,
        quantity: int = 1,
        *,
        holder_id: str | None = None,
        ttl_ms: int = LONG_MS,
        hold_ms: int = LONG_MS,
        keep_refusal: bool = False,
        customer_id: str | None = None,
        partial: bool = False,
    ) -> Granted | Refusal:
        order = Order(order_id, quantity, customer_id)
        holder_id = holder_id or f"holder of {order_id}"
        return self.side.execute(op.Grant(self.sku, order, holder_id, ttl_ms, hold_ms, keep_refusal, partial))

    def granted(
        self,
        order_id: str,
        quantity: int = 1,
        *,
        holder_id: str | None = None,
        ttl_ms: int = LONG_MS,
        hold_ms: int = LONG_MS,
    ) -> Granted:
        """Grant, where anything else would be a mistake of the test."""
        answer = self.grant(order_id, quantity, holder_id=holder_id, ttl_ms=ttl_ms, hold_ms=hold_ms)
        assert isinstance(answer, Granted), answer
        return answer

    def renew(self, order_id: str, *, holder_id: str | None = None, ttl_ms: int = LONG_MS) -> Renewed | Lost:
        holder_id = holder_id or f"holder of {order_id}"
        return self.side.execute(op.RenewGrant(self.sku, order_id, holder_id, ttl_ms, ttl_ms))

    def confirm(self, order_id: str, holder_id: str | None = None, *, stored: bool = False) -> Settled:
        return self.side.execute(op.Confirm(self.sku, order_id, holder_id, stored))

    def cancel(self, order_id: str, holder_id: str | None = None, *, voided: bool = False) -> Settled | Superseded:
        return self.side.execute(op.Cancel(self.sku, order_id, holder_id, voided))

    def expire(self, order_id: str) -> Settled | None:
        return self.side.execute(op.Expire(self.sku, order_id))

    def confirm_many(self, *order_ids: str, stored: bool = False) -> tuple[Settled | SegmentedError | None, ...]:
        return self.side.execute(op.SettleMany(self.sku, "confirmed", order_ids, stored))

    def cancel_many(self, *order_ids: str, voided: bool = False) -> tuple[Settled | SegmentedError | None, ...]:
        return self.side.execute(op.SettleMany(self.sku, "cancelled", order_ids, voided))

    def expire_due(self, limit: int = 100) -> tuple[tuple[Settled, ...], bool]:
        return self.side.execute(op.ExpireDue(self.sku, limit))

    def restock(self, units: int, restock_id: str) -> Restocked | Closed:
        return self.side.execute(op.Restock(self.sku, restock_id, units))

    def withdraw(self, units: int, withdraw_id: str) -> Restocked | TooFew:
        return self.side.execute(op.Withdraw(self.sku, withdraw_id, units))

    def resize(self, segments: int) -> Resized:
        return self.side.execute(op.Resize(self.sku, segments))

    def close(self) -> PoolClosed:
        return self.side.execute(op.ClosePool(self.sku))

    def due(self, limit: int = 100) -> tuple[str, ...]:
        return self.side.execute(op.ListDue(self.sku, limit))

    def state(self) -> PoolState:
        return self.side.execute(op.ReadPool(self.sku))

    def totals(self) -> tuple[int, int, int]:
        """Units available, reserved, confirmed."""
        state = self.state()
        return state.available, state.reserved, state.confirmed

    def record(self, order_id: str) -> OrderRecord | None:
        return self.side.execute(op.ReadOrders(self.sku, (order_id,)))[0]

    def ledger(self, after: int = 0) -> tuple[LedgerEntry, ...]:
        return self.side.execute(op.ReadLedger(self.sku, after, 1_000))

    def story(self) -> list[tuple[str, str | None]]:
        """Return kind and order of every ledger entry."""
        return [(entry.kind, entry.order_id) for entry in self.ledger()]

    def now_us(self) -> int:
        """Return the time on the clock of the store, in microseconds."""
        if self.side.server is None:
            return int(self.side.clock.now() * 1_000_000)
        seconds, microseconds = self.side.server.time()
        return seconds * 1_000_000 + microseconds

    def check_tokens(self, began_us: int, *tokens: int | None) -> None:
        """Check the tokens of grants that began then: each is larger than the last one, and none is off the clock.

        While the model's clock stands still they are exactly its time, and one more each.
        """
        found = [token for token in tokens if token is not None]
        assert len(found) == len(tokens)
        assert found == sorted(set(found))
        assert began_us <= found[0]
        assert found[-1] < self.now_us() + len(found)

    def let_lease_lapse(self, order_id: str, holder_id: str | None = None) -> None:
        """End a living lease early, as a holder that died some time ago would leave it."""
        holder_id = holder_id or f"holder of {order_id}"
        self.side.execute(op.RenewGrant(self.sku, order_id, holder_id, ttl_ms=1, hold_ms=1))
        self.side.pass_time(0.003)

    def let_short_holds_lapse(self) -> None:
        """Wait until what was taken for SHORT_MS is due."""
        self.side.pass_time(SHORT_PASSES)

    def check_books(self, *, torn: Collection[str] = ()) -> set[str]:
        """Fold the ledger and compare it with every number. Returns which of the carts `torn` the audit names."""
        report, _ = self.side.run(audit_plan(self.sku))
        named = [one.name for one in report.drift if one.about == "cart" and one.name in torn]
        assert len(named) == len(report.drift), report.drift
        assert (report.drift_count, report.refused_wrongly, report.oversold) == (len(named), 0, 0)
        state = report.state
        assert state.stocked == state.available + state.reserved + state.confirmed
        assert state.available == sum(state.stock)
        assert min(state.available, state.reserved, state.confirmed, *state.stock) >= 0
        return set(named)


def frozen(shop: Shop) -> Shop:
    """Open a pool of ten units with one sold and one reserved, and freeze it."""
    shop.open(10, 4)
    shop.reserved("sold")
    shop.confirm("sold")
    shop.reserved("kept", 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    return shop


def verified(side: Side, sku: str, sequence: int = 0, *, epoch: int = 1) -> Verified:
    """Verify a pool by the two steps that the order database takes."""
    server = side.execute(op.VerifyPool(sku, epoch, sequence))
    if isinstance(server, Verified):
        return server
    answer = side.execute(op.VerifyPool(sku, epoch, sequence, server))
    assert isinstance(answer, Verified)
    return answer
