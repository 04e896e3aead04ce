"""Errors of a pool, of its orders and of carts."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Protocol

from segmented.errors.base import InvalidInput, LeaseError, SegmentedError, StoreRefused


class StockError(SegmentedError):
    """The stock pool cannot do this.

    Cure: Catch it for every error of a pool, an order or a cart.
    """


class PoolMissing(StockError):
    """The pool is not open: it was never opened, or its keys vanished. It is never reopened silently.

    Cure: Open the pool, or check the store's address and the sku.
    """

    def __init__(self, sku: str) -> None:
        super().__init__(
            f"pool {sku!r} is not open: `segmented pool list` shows those that are; if its keys are gone for good, "
            f"'segmented pool reopen {sku} --database URL' opens it with what an order database has not sold"
        )
        self.sku = sku


class PoolDiffers(StockError):
    """The pool is open already with another stock or other settings than asked, or is closed; nothing changed.

    Cure: Open it with its own settings, change it with restock, withdraw, resize or assign, or use another sku.
    """

    def __init__(self, sku: str, differing: Sequence[str]) -> None:
        closed = any(one.startswith("state ") for one in differing)
        cure = (
            "sell from a pool of another sku, or archive it and open it again in a later epoch"
            if closed
            else "open it with its own numbers, change it with restock, withdraw, resize or assign, or use another sku"
        )
        super().__init__(f"pool {sku!r} is open already, with {', '.join(differing)}: nothing is changed; {cure}")
        self.sku = sku
        self.differing = tuple(differing)


class PoolArchived(PoolMissing):
    """The pool was archived or deleted, or is about to be: it takes no more orders.

    Cure: Sell from another pool, or open this one again in a later epoch.
    """

    def __init__(
        self, sku: str, epoch: int = 0, digest: str = "", target: str = "", *, is_removed: bool = False
    ) -> None:
        """Create the error with the pool; its last epoch, and digest and place of its archive, once it is removed.

        The digest "0" says that it was deleted.
        """
        if is_removed:
            done = "deleted" if digest == "0" else f"archived to {target}" if target else "archived or deleted"
            later = f"epoch {epoch + 1} or a later one, with epoch={epoch + 1} or --epoch" if epoch else "a later epoch"
            said = f"was {done}: open it again in {later}, or sell from another pool"
        elif digest == "0":
            said = "is being deleted: 'segmented pool delete' finishes an interrupted run"
        else:
            said = "is being archived and answers reads alone: 'segmented pool archive' finishes an interrupted run"
        SegmentedError.__init__(self, f"pool {sku!r} {said}")
        self.sku = sku
        self.epoch = epoch
        self.digest = digest
        self.target = target
        self.is_removed = is_removed


class PoolInShards(StockError):
    """The sku is already sold in shards or in one hash slot, so it cannot be opened in the other form.

    Cure: Use `find_pool`, or the class with which the pool was opened.
    """

    def __init__(self, sku: str, *, is_in_shards: bool = True) -> None:
        kind, other = ("shards", "Pool") if is_in_shards else ("one hash slot", "ShardedPool")
        super().__init__(f"{sku!r} is sold in {kind} already: opening a {other} beside would sell its units twice")
        self.sku = sku


class ShardVanished(StockError):
    """A shard of an open pool has no keys, or the pool's directory is gone: it is never opened again silently.

    Cure: Bring the server's data back; do not open the pool again.
    """

    def __init__(self, sku: str) -> None:
        super().__init__(
            f"{sku!r} was open and its keys are gone: bring its data back; opening it again could sell its units twice"
        )
        self.sku = sku


class PoolDrifted(StoreRefused):
    """The numbers of the pool do not add up, because another client wrote to it: audit and repair it.

    Cure: Run `segmented pool audit` and `segmented pool repair`, and find the other client.
    """

    def __init__(self, sku: str) -> None:
        super().__init__(f"the numbers of pool {sku!r} do not add up: another client wrote to it; audit and repair it")
        self.sku = sku


class PoolGated(StoreRefused):
    """The pool is gated: its order database must decide an order before the pool confirms it or returns its units.

    Cure: Pass `gate=` to the pool.
    """

    def __init__(self, sku: str, order_id: str | None, verb: str = "void") -> None:
        it = "what is due" if order_id is None else f"order {order_id!r}"
        use = "use Pool(store, sku, gate=gate)"
        super().__init__(f"pool {sku!r} is gated: its order database must {verb} {it} first; {use}")
        self.sku = sku
        self.order_id = order_id


class ChangeGated(PoolGated):
    """The pool is gated: its order database must store its opening, or a change of its stock or segments, as well.

    Cure: Pass `gate=` to the pool.
    """

    def __init__(self, sku: str, change: str) -> None:
        SegmentedError.__init__(self, f"pool {sku!r} is gated: use Pool(store, sku, gate=gate) to {change} it")
        self.sku = sku
        self.order_id = None
        self.change = change


class CartGated(PoolGated):
    """The pool is gated: its order database must decide a cart before the cart's record and its pools do.

    Cure: Use `Carts(store, gate=gate)`.
    """

    def __init__(self, sku: str, cart_id: str) -> None:
        how = "use Carts(store, gate=gate)"
        message = f"pool {sku!r} is gated: its order database must decide cart {cart_id!r} first; {how}"
        SegmentedError.__init__(self, message)
        self.sku = sku
        self.order_id = None
        self.cart_id = cart_id


class TransferGated(PoolGated):
    """The pool in shards is gated: its order database must store the units that go from one shard to another.

    Cure: Use `ShardedPool(store, sku, gate=gate)`.
    """

    def __init__(self, sku: str) -> None:
        how = "use ShardedPool(store, sku, gate=gate), which brings units from one shard to another"
        message = f"pool {sku!r} is gated: its order database must store where its units are; {how}"
        SegmentedError.__init__(self, message)
        self.sku = sku
        self.order_id = None


class ThawGated(PoolGated):
    """The pool is gated: its order database knows what is sold, so it is rebuilt and not thawed.

    Cure: Run `segmented pool rebuild SKU --database URL`.
    """

    def __init__(self, sku: str) -> None:
        SegmentedError.__init__(
            self,
            f"pool {sku!r} is gated: its order database knows what is sold, so use 'segmented pool rebuild {sku} "
            "--database URL'",
        )
        self.sku = sku
        self.order_id = None


class PoolNotGated(StockError):
    """The pool was opened without a gate, so no order database may decide its orders.

    Cure: Use the pool without a gate, or open a gated pool under another sku.
    """

    def __init__(self, sku: str) -> None:
        super().__init__(f"pool {sku!r} was opened without an order database, so none may decide its orders")
        self.sku = sku


class PoolDiverged(StockError):
    """The pool and its order database disagree, so this order cannot be decided.

    Cure: Run `segmented pool verify` and `segmented pool audit` with the database; see [recover a
    pool](how-to/recover-a-pool.md).
    """

    def __init__(self, sku: str, order_id: str, detail: str) -> None:
        super().__init__(f"pool {sku!r} and its order database disagree about order {order_id!r}: {detail}")
        self.sku = sku
        self.order_id = order_id


class ChangeDiverged(StockError):
    """The pool and its order database disagree, so this change cannot be finished.

    Cure: Run `segmented pool audit` with the database, then decide by hand; see [recover a
    pool](how-to/recover-a-pool.md).
    """

    def __init__(self, sku: str, change: str, detail: str) -> None:
        super().__init__(f"pool {sku!r} and its order database disagree about {change}: {detail}")
        self.sku = sku
        self.change = change


class ChangeMismatch(StockError):
    """The id of a restock or a withdrawal was used again for another change.

    Cure: Use a new id for each restock and withdrawal.
    """

    def __init__(self, sku: str, change_id: str) -> None:
        super().__init__(f"change {change_id!r} of pool {sku!r} was something else before")
        self.sku = sku
        self.change_id = change_id


class PoolFrozen(StockError):
    """The stock's server lost acknowledged changes of the pool: only reads and the audit go on until it is mended.

    Cure: Run `segmented pool rebuild` with an order database, `segmented pool thaw` without one.
    """

    def __init__(
        self,
        sku: str,
        found: tuple[int, int],
        seen: tuple[int, int],
        missing: str | None = None,
        *,
        is_gated: bool | None = None,
    ) -> None:
        lost = f"change {seen[1]} of epoch {seen[0]} was seen" if missing is None else f"its key {missing!r} is gone"
        cure = "With an order database run 'segmented pool rebuild', without one 'segmented pool thaw'"
        cure = cure if is_gated is None else f"Run 'segmented pool {'rebuild' if is_gated else 'thaw'}'"
        at = f"It is at change {found[1]} of epoch {found[0]}, and {lost}"
        super().__init__(f"pool {sku!r} is frozen: it lost acknowledged changes. {at}. {cure}")
        self.sku = sku
        self.found = found
        self.seen = seen
        self.missing = missing
        self.is_gated = is_gated


class PoolNotFrozen(StockError):
    """The pool sells, so there is nothing to rebuild or to thaw.

    Cure: Nothing to do.
    """

    def __init__(self, sku: str) -> None:
        super().__init__(f"pool {sku!r} is not frozen: it sells, and there is nothing to rebuild or to thaw")
        self.sku = sku


class PoolUnverified(StockError):
    """The gated pool must be compared with its order database before it sells; nothing changed.

    Cure: Start a worker, or run `segmented pool verify SKU --database URL`.
    """

    def __init__(self, sku: str) -> None:
        how = f"workers do so by themselves, and so does 'segmented pool verify {_in_commands(sku)} --database URL'"
        super().__init__(f"pool {sku!r} must be compared with its order database before it answers: {how}")
        self.sku = sku


class PoolVanished(StockError):
    """The pool was open and its keys are gone: it is not opened again in the same epoch.

    Cure: Bring the server's data back, or open what is unsold with `segmented pool reopen`.
    """

    def __init__(self, sku: str, epoch: int) -> None:
        super().__init__(
            f"pool {sku!r} was open in epoch {epoch} and is not on the stock's server: name the server it was opened "
            "on or bring its data back, else open what is not sold in a new epoch, from an order database by "
            f"'segmented pool reopen {sku} --database URL --segments K'"
        )
        self.sku = sku
        self.epoch = epoch


class LayoutUnknown(StockError):
    """The pool's keys have the layout of another release of segmented, so this one neither reads nor changes them.

    Cure: Upgrade `segmented` in this process.
    """

    def __init__(self, sku: str, found: str, known: str) -> None:
        super().__init__(
            f"pool {sku!r} has keys of layout {found}, and this release of segmented knows layout {known} only: "
            "upgrade segmented in this process"
        )
        self.sku = sku
        self.found = found
        self.known = known


class EpochEnded(StockError):
    """The pool was rebuilt in a later epoch since the order database decided an order or a change; nothing changed.

    Cure: Ask the order database again.
    """

    def __init__(self, sku: str, epoch: int) -> None:
        super().__init__(
            f"pool {sku!r} is in epoch {epoch}, and this was decided in another one: ask its order database again"
        )
        self.sku = sku
        self.epoch = epoch


class AnotherDatabase(InvalidInput):
    """The order database has another sale under the pool's sku; nothing changed.

    Cure: Name the database that the pool was opened with.
    """

    def __init__(self, sku: str, database: str = "this order database") -> None:
        super().__init__(
            f"{database} has another sale of {sku!r}, not the one of the pool: name the database that the pool was "
            "opened with, or a copy of that one"
        )
        self.sku = sku
        self.database = database


class AssignedElsewhere(StockError):
    """The pool names another queue for its submitted orders than this worker's, or a step that the worker lacks.

    Cure: Start a worker of that queue and step, or run `segmented pool assign`.
    """

    def __init__(self, sku: str, queue: str, step: str) -> None:
        name = sku.partition("\x1f")[0]
        of_queue = f" of queue {queue!r}" if queue else ""
        with_step = f" with step {step!r}" if step else ""
        super().__init__(
            f"pool {name!r} leaves its submitted orders to workers{of_queue}{with_step}, and this is none of them: "
            "start such a worker (SEGMENTED_QUEUE, SEGMENTED_STEP), or name others with 'segmented pool assign "
            f"{name}'"
        )
        self.sku = sku
        self.queue = queue
        self.step = step


class RowsMissing(InvalidInput):
    """The order database has no rows for the pool; nothing changed.

    Cure: Name the database that the pool was opened with.
    """

    def __init__(self, sku: str, database: str = "this order database") -> None:
        super().__init__(f"{database} has no rows for {sku!r}: name the database that the pool was opened with")
        self.sku = sku
        self.database = database


def _in_commands(sku: str) -> str:
    """Return how a command names a pool, or one of its shards."""
    name, _, place = sku.partition("\x1f")
    return f"{name} --shard {place.rstrip(ascii_lowercase)}" if place else name


class Refused(Protocol):
    """An answer that refuses, such as SoldOut: see `segmented.models.Refusal`."""

    @property
    def order_id(self) -> str:
        """Return the order id."""

    def describe(self) -> str:
        """Return the reason in a few words."""


class Ended(Protocol):
    """An answer with the state in which an order or a cart has ended: see `Settled` and `CartSettled`."""

    @property
    def state(self) -> str:
        """Return the state."""

    def describe(self) -> str:
        """Return what has ended, and how, as the beginning of a sentence."""


class AlreadySettled(StockError):
    """The order or cart has ended otherwise than asked: nothing changed.

    Cure: Read `state`: a confirmed order is sold, any other has returned its units; use a new order id.
    """

    def __init__(self, settled: Ended, cannot: str = "") -> None:
        given = "its units are not given back" if settled.state == "confirmed" else "it cannot be confirmed"
        super().__init__(f"{settled.describe()}: {cannot or given}")
        self.settled = settled
        self.state = settled.state


class GrantLost(LeaseError):
    """The order ended while the body of its grant's `with` statement ran, so it is not sold.

    Cure: Undo what the body did, or choose a longer `hold`; order again with a new id.
    """

    def __init__(self, order_id: str, state: str) -> None:
        why = "its hold ended" if state == "expired" else f"it was {state}"
        super().__init__(f"order {order_id!r} is not sold: {why} while the body ran, and its units went back")
        self.order_id = order_id
        self.state = state


class NotGranted(StockError):
    """The order was refused, so the body of the `with` statement did not run.

    Cure: Handle `refusal`; outside of `with`, `grant` returns it as a value.
    """

    def __init__(self, refusal: Refused) -> None:
        super().__init__(f"order {refusal.order_id!r} was not granted: {refusal.describe()}")
        self.refusal = refusal


class NotConfirmed(StockError):
    """The order was not confirmed by this call, so the body of the `with` statement did not run.

    Cure: Handle `answer`: the database had decided the order before, or refused it.
    """

    def __init__(self, order_id: str, answer: object) -> None:
        super().__init__(f"order {order_id!r} was not confirmed by this transaction: {answer}")
        self.order_id = order_id
        self.answer = answer


class OrderMismatch(StockError):
    """An order id was used again with other content.

    Cure: Use a new order id, or repeat the order with its stored content.
    """

    def __init__(self, order_id: str, detail: str = "") -> None:
        super().__init__(f"order {order_id!r} exists with other content{': ' + detail if detail else ''}")
        self.order_id = order_id


class OrderUnknown(StockError):
    """The pool knows no such order.

    Cure: Check the id and the pool; a forgotten or archived order is no longer in the pool.
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(f"order {order_id!r} is not known to the pool")
        self.order_id = order_id


class OrderQueued(StockError):
    """The order was submitted, and no worker has decided it yet.

    Cure: Wait for a worker (`handle.wait`), or cancel the order.
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(f"order {order_id!r} is queued: a worker decides it first, unless it is cancelled")
        self.order_id = order_id


class OrderInWork(StockError):
    """A holder, a worker or a cart has the order, so its units are not changed.

    Cure: Change the order before it is submitted or granted, or cancel it; a cart keeps its lines.
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(f"order {order_id!r} is in work: a holder, a worker or a cart has it, and its units stay")
        self.order_id = order_id


class OrderInHand(SegmentedError):
    """Another delivery of the order is in progress, or its worker died and its lease has not expired.

    Cure: Let the message be delivered again after `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class NoSegmentFree(SegmentedError, TimeoutError):
    """No segment became free within a task's maximum wait.

    Cure: Add segments or workers, shorten the step, or wait longer; the task is retried.
    """


class GrantSuperseded(StockError):
    """A later grant reached the order database first, so this holder must stop.

    Cure: Stop: another worker finishes the order.
    """

    def __init__(self, order_id: str, fence: int) -> None:
        super().__init__(f"grant for order {order_id!r} is superseded by fencing token {fence}")
        self.order_id = order_id
        self.fence = fence


class CartMismatch(StockError):
    """A cart id was used again with other content.

    Cure: Use a new cart id, or repeat the cart with its stored content.
    """

    def __init__(self, home: str, cart_id: str, detail: str = "") -> None:
        told = f": {detail}" if detail else ""
        super().__init__(f"cart {cart_id!r} in the pool {home!r} exists with other content{told}")
        self.home = home
        self.cart_id = cart_id


class CartUnknown(StockError):
    """The pool knows no such cart.

    Cure: Name the first of the cart's skus as its home, and check the id.
    """

    def __init__(self, home: str, cart_id: str) -> None:
        super().__init__(f"cart {cart_id!r} is not known to the pool {home!r}: its home is the first of its skus")
        self.home = home
        self.cart_id = cart_id


class CartDiverged(StockError):
    """An order of a cart was ended against the cart's decision, by something other than the cart.

    Cure: Compare the cart with its orders; if one is sold, the cart can only be confirmed.
    """

    def __init__(self, cart_id: str, state: str, sku: str, detail: str) -> None:
        super().__init__(f"cart {cart_id!r} is {state}, but its line in the pool {sku!r} {detail}")
        self.cart_id, self.state, self.sku = cart_id, state, sku
