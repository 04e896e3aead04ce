"""All errors of the library, under one root. The class docstring is the default message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from segmented import rebuildable

if TYPE_CHECKING:
    from collections.abc import Mapping


class SegmentedError(rebuildable.RebuildableError):
    """The operation failed."""

    def __init__(self, message: str | None = None) -> None:
        """Create the error with one clear sentence, or the class docstring's first line."""
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInput(SegmentedError):
    """The input is not usable."""


class StoreError(SegmentedError):
    """The store did not answer."""


class StoreUnavailable(StoreError):
    """The store cannot be reached; whether the operation ran is unknown."""


class StoreBusy(StoreUnavailable):
    """No connection to the store was free in time, so nothing was sent: allow more connections, or wait longer."""


class AcknowledgementUnknown(StoreUnavailable):
    """The pool has made the change, but too few replicas or disks acknowledged it in time: repeat the same id."""

    def __init__(self, sku: str, order_id: str | None, wanted: int, counted: int, detail: str) -> None:
        """Create the error with the pool, the id to repeat, the acknowledgements wanted and counted, and the reason."""
        what = f"the outcome of {'a change' if order_id is None else repr(order_id)} in pool {sku!r} is unknown"
        super().__init__(f"{what}: {detail}; repeat the call with the same id")
        self.sku, self.order_id, self.wanted, self.counted = sku, order_id, wanted, counted


class LockUnreachable(StoreUnavailable):
    """The lock could not be acquired because its store cannot be reached; the protected work has not begun."""

    def __init__(self, name: str, detail: str) -> None:
        """Create the error with the lock's name and the store's message."""
        super().__init__(detail)
        self.name = name


class StoreRefused(StoreError):
    """The store refused the operation; nothing changed."""


class DatabaseUnavailable(StoreError):
    """The order database cannot be reached; whether the statement ran is unknown."""


class TransactionConflict(StoreRefused):
    """The database rolled the transaction back because it conflicts with another: run it again from its start."""

    def __init__(self, what: str, detail: str) -> None:
        """Create the error with the request and the database's message."""
        super().__init__(f"{what}: the transaction is rolled back, run it again from its start: {detail}")


class LeaseError(SegmentedError):
    """The lease is not usable."""


class LeaseLost(LeaseError):
    """The lease has expired or was taken away, so the work that it protected must stop."""

    def __init__(self, name: str, holder_id: str, *, is_released: bool = False) -> None:
        """Create the error with the lock and the holder that lost it, or with `is_released`, released it."""
        why = "was released, so it protects nothing any more" if is_released else "is lost: it lapsed or was taken away"
        super().__init__(f"lease on {name!r} {why}")
        self.name, self.holder_id = name, holder_id


class AcquireTimeout(LeaseError):
    """The lock was not free before the deadline."""

    def __init__(self, name: str, timeout: float, *, is_delayed: bool = False) -> None:
        """Create the error with the lock and the seconds waited; `is_delayed` if only a lock-delay kept it closed."""
        why = ": its last lease was lost, and the lock-delay still runs" if is_delayed else ""
        super().__init__(f"lock {name!r} was not free within {timeout:g} s{why}")
        self.name = name
        self.timeout = timeout
        self.is_delayed = is_delayed


class ReplicasMissing(LeaseError):
    """Too few replicas acknowledged the lock, so it was released again."""

    def __init__(self, name: str, wanted: int, acknowledged: int) -> None:
        """Create the error with the lock and the numbers of replicas wanted and acknowledged."""
        super().__init__(f"lock {name!r} was acknowledged by {acknowledged} replicas of the {wanted} wanted")
        self.name, self.wanted, self.acknowledged = name, wanted, acknowledged


class PermitsMismatch(InvalidInput):
    """The semaphore is in use with another number of permits."""

    def __init__(self, name: str, permits: int, wanted: int) -> None:
        """Create the error with the semaphore, its current number of permits, and this handle's number."""
        super().__init__(f"semaphore {name!r} is in use with {permits} permits, not with {wanted}")
        self.name, self.permits, self.wanted = name, permits, wanted


class PartlyReleased(LeaseError):
    """Some of the names could not be released; release again, or wait for their leases to expire."""

    def __init__(self, failures: Mapping[str, SegmentedError]) -> None:
        """Create the error with the failure of each name."""
        told = "; ".join(f"{name!r}: {failure}" for name, failure in failures.items())
        super().__init__(f"not released, release again or let the lease lapse: {told}")
        self.failures = dict(failures)


class WrongKind(StoreRefused):
    """The key holds another type: another kind of lock, or something else, uses the name."""


class StaleToken(LeaseError):
    """A higher fencing token has reached the resource, so this holder must stop."""

    def __init__(self, resource: str, token: int, newest: int | None) -> None:
        """Create the error with the resource, the refused token, and the newest one."""
        super().__init__(f"fencing token {token} is too old for {resource!r}, which has seen {newest}")
        self.resource, self.token, self.newest = resource, token, newest


class LoaderFailed(SegmentedError):
    """The loader of a value failed recently, and that failure is kept for a while."""

    def __init__(self, name: str, kind: str, detail: str) -> None:
        """Create the error with the value's name, and the type and message of the loader's error."""
        super().__init__(f"the loader of {name!r} failed a moment ago: {kind}: {detail}")
        self.name, self.kind, self.detail = name, kind, detail


class StockError(SegmentedError):
    """The stock pool cannot do this."""


class PoolMissing(StockError):
    """The pool is not open: it was never opened, or its keys vanished. It is never reopened silently."""

    def __init__(self, sku: str) -> None:
        """Create the error with the pool's sku."""
        super().__init__(f"pool {sku!r} is not open: it was never opened here, or its keys vanished")
        self.sku = sku


class PoolInShards(StockError):
    """The sku is already sold in shards or in one hash slot, so it cannot be opened in the other form."""

    def __init__(self, sku: str, *, is_in_shards: bool = True) -> None:
        """Create the error with the pool's sku and whether it is in shards."""
        kind, other = ("shards", "Pool") if is_in_shards else ("one hash slot", "ShardedPool")
        super().__init__(f"{sku!r} is sold in {kind} already: opening a {other} beside would sell its units twice")
        self.sku = sku


class ShardVanished(StockError):
    """A shard of an open pool has no keys, or the pool's directory is gone: it is never opened again silently."""

    def __init__(self, sku: str) -> None:
        """Create the error with the name of the shard or the pool."""
        super().__init__(
            f"{sku!r} was open and its keys are gone: bring its data back; opening it again could sell its units twice"
        )
        self.sku = sku


class PoolDrifted(StoreRefused):
    """The numbers of the pool do not add up, because another client wrote to it: audit and repair it."""

    def __init__(self, sku: str) -> None:
        """Create the error with the pool's sku."""
        super().__init__(f"the numbers of pool {sku!r} do not add up: another client wrote to it; audit and repair it")
        self.sku = sku


class PoolGated(StoreRefused):
    """The pool is gated: its order database must decide an order before the pool confirms it or returns its units."""

    def __init__(self, sku: str, order_id: str | None, verb: str = "void") -> None:
        """Create the error with the pool, the order, or None for all that are due, and what the database must do."""
        it = "what is due" if order_id is None else f"order {order_id!r}"
        by = "expire_voided(pool, gate)" if order_id is None else "cancel_order" if verb == "void" else "take_order"
        use = f"use Pool(store, sku, gate=gate), or segmented.orders.{by}"
        super().__init__(f"pool {sku!r} is gated: its order database must {verb} {it} first; {use}")
        self.sku = sku
        self.order_id = order_id


class ChangeGated(PoolGated):
    """The pool is gated: its order database must store a change of its stock or segments as well."""

    def __init__(self, sku: str, change: str) -> None:
        """Create the error with the pool and the change, as a verb."""
        how = f"use Pool(store, sku, gate=gate) to {change} it, or segmented.orders.{change}_gated"
        SegmentedError.__init__(self, f"pool {sku!r} is gated: {how}")
        self.sku = sku
        self.order_id = None
        self.change = change


class PoolNotGated(StockError):
    """The pool was opened without a gate, so no order database may decide its orders."""

    def __init__(self, sku: str) -> None:
        """Create the error with the pool's sku."""
        super().__init__(f"pool {sku!r} was opened without gated=True, so no order database may decide its orders")
        self.sku = sku


class PoolDiverged(StockError):
    """The pool and its order database disagree, so this order cannot be decided."""

    def __init__(self, sku: str, order_id: str, detail: str) -> None:
        """Create the error with the pool, the order, and both sides' states."""
        super().__init__(f"pool {sku!r} and its order database disagree about order {order_id!r}: {detail}")
        self.sku = sku
        self.order_id = order_id


class ChangeDiverged(StockError):
    """The pool and its order database disagree, so this change cannot be finished."""

    def __init__(self, sku: str, change: str, detail: str) -> None:
        """Create the error with the pool, the change, and both sides' states."""
        super().__init__(f"pool {sku!r} and its order database disagree about {change}: {detail}")
        self.sku = sku
        self.change = change


class PoolFrozen(StockError):
    """The stock's server lost acknowledged changes of the pool: only reads and the audit go on until it is mended."""

    def __init__(
        self,
        sku: str,
        found: tuple[int, int],
        seen: tuple[int, int],
        missing: str | None = None,
        *,
        is_gated: bool | None = None,
    ) -> None:
        """Create the error: epoch and sequence number found and seen, the key that is gone, and whether it is gated."""
        lost = f"change {seen[1]} of epoch {seen[0]} was seen" if missing is None else f"its key {missing!r} is gone"
        cure = "With an order database run 'segmented pool rebuild', without one 'segmented pool thaw'"
        cure = cure if is_gated is None else f"Run 'segmented pool {'rebuild' if is_gated else 'thaw'}'"
        at = f"It is at change {found[1]} of epoch {found[0]}, and {lost}"
        super().__init__(f"pool {sku!r} is frozen: it lost acknowledged changes. {at}. {cure}")
        self.sku, self.found, self.seen, self.missing, self.is_gated = sku, found, seen, missing, is_gated


class LayoutUnknown(StockError):
    """The pool's keys have the layout of another release of segmented, so this one neither reads nor changes them."""

    def __init__(self, sku: str, found: str, known: str) -> None:
        """Create the error with the pool, the layout of its keys, and the only one that this release knows."""
        super().__init__(
            f"pool {sku!r} has keys of layout {found}, and this release of segmented knows layout {known} only: "
            "upgrade segmented in this process"
        )
        self.sku = sku
        self.found = found
        self.known = known


class PoolUnverified(StockError):
    """The gated pool must be compared with its order database before it sells; nothing changed."""

    def __init__(self, sku: str) -> None:
        """Create the error with the pool's sku."""
        how = f"workers do so by themselves, and so does 'segmented pool verify {sku} --database URL'"
        super().__init__(f"pool {sku!r} must be compared with its order database before it answers: {how}")
        self.sku = sku


class PoolNotFrozen(StockError):
    """The pool sells, so there is nothing to rebuild or to thaw."""

    def __init__(self, sku: str) -> None:
        """Create the error with the pool's sku."""
        super().__init__(f"pool {sku!r} is not frozen: it sells, and there is nothing to rebuild or to thaw")
        self.sku = sku


class PoolVanished(StockError):
    """The pool was open and its keys are gone: it is not opened again in the same epoch."""

    def __init__(self, sku: str, epoch: int) -> None:
        """Create the error with the pool and the epoch in which it was open."""
        super().__init__(
            f"pool {sku!r} was open in epoch {epoch} and is not on the stock's server: name the server it was opened "
            "on or bring its data back, else open what is not sold in a new epoch, from an order database by "
            f"'segmented pool reopen {sku} --database URL'"
        )
        self.sku, self.epoch = sku, epoch


class Refused(Protocol):
    """An answer that refuses, such as SoldOut: see `segmented.models.Refusal`."""

    @property
    def order_id(self) -> str:
        """Return the order id."""

    def describe(self) -> str:
        """Return the reason in a few words."""


class NotGranted(StockError):
    """The order was refused, so the body of the `with` statement did not run."""

    def __init__(self, refusal: Refused) -> None:
        """Create the error with the refusal."""
        super().__init__(f"order {refusal.order_id!r} was not granted: {refusal.describe()}")
        self.refusal = refusal


class OrderMismatch(StockError):
    """An order id was used again with other content."""

    def __init__(self, order_id: str, detail: str = "") -> None:
        """Create the error with the order and, if known, the difference."""
        super().__init__(f"order {order_id!r} exists with other content{': ' + detail if detail else ''}")
        self.order_id = order_id


class ChangeMismatch(StockError):
    """The id of a restock or a withdrawal was used again for another change."""

    def __init__(self, sku: str, change_id: str) -> None:
        """Create the error with the pool and the change."""
        super().__init__(f"change {change_id!r} of pool {sku!r} was something else before")
        self.sku = sku
        self.change_id = change_id


class CartMismatch(StockError):
    """A cart id was used again with other content."""

    def __init__(self, home: str, cart_id: str) -> None:
        """Create the error with the cart and the pool that keeps it."""
        super().__init__(f"cart {cart_id!r} in the pool {home!r} exists with other content")
        self.home = home
        self.cart_id = cart_id


class CartUnknown(StockError):
    """The pool knows no such cart."""

    def __init__(self, home: str, cart_id: str) -> None:
        """Create the error with the cart and the pool that would keep it."""
        super().__init__(f"cart {cart_id!r} is not known to the pool {home!r}: its home is the first of its skus")
        self.home = home
        self.cart_id = cart_id


class CartDiverged(StockError):
    """A line of a cart was ended against the cart's decision, by something other than the cart."""

    def __init__(self, cart_id: str, state: str, sku: str, detail: str) -> None:
        """Create the error with the cart, its decision, the line's sku, and the difference."""
        super().__init__(f"cart {cart_id!r} is {state}, but its line in the pool {sku!r} {detail}")
        self.cart_id, self.state, self.sku = cart_id, state, sku


class OrderUnknown(StockError):
    """The pool knows no such order."""

    def __init__(self, order_id: str) -> None:
        """Create the error with the order id."""
        super().__init__(f"order {order_id!r} is not known to the pool")
        self.order_id = order_id


class OrderQueued(StockError):
    """The order was submitted, and no worker has decided it yet."""

    def __init__(self, order_id: str) -> None:
        """Create the error with the order id."""
        super().__init__(f"order {order_id!r} is queued: a worker decides it first, unless it is cancelled")
        self.order_id = order_id


class GrantSuperseded(StockError):
    """A later grant reached the order database first, so this holder must stop."""

    def __init__(self, order_id: str, fence: int) -> None:
        """Create the error with the order and the newer fencing token."""
        super().__init__(f"grant for order {order_id!r} is superseded by fencing token {fence}")
        self.order_id = order_id
        self.fence = fence
