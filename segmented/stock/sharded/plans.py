"""The operations of a pool in shards, as plans, run by the sync and the async pool and by the simulator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from segmented import protocol as op
from segmented.errors import ChangeGated, InvalidInput, SegmentedError, StoreError
from segmented.models import (
    SKU_BYTES_MAX,
    AlreadyOpen,
    Assigned,
    Assignment,
    Busy,
    Closed,
    Granted,
    LimitReached,
    Opened,
    Order,
    PoolClosed,
    Refusal,
    Resized,
    Restocked,
    Settled,
    Shard,
    ShardedState,
    SoldOut,
    Taken,
    TooFew,
    checked_id,
)
from segmented.plans import Batch, Now, Plan, perform
from segmented.stock.as_asked import all_as_asked, as_cancelled, as_confirmed
from segmented.stock.outbox import Noted
from segmented.stock.plans import expire_plan
from segmented.stock.settings import PoolSettings, checked_list
from segmented.stock.sharded.gathering import Gathering, TransferBooks
from segmented.stock.sharded.opening import (
    ALL_SECONDS,
    all_plan,
    directory_plan,
    home_of,
    open_plan,
    opened_ungated_plan,
    state_plan,
    summed,
)
from segmented.stock.sharded.serving import Submission, granting, reserving, reserving_one, served_plan, withdrawn_plan
from segmented.stock.sold_out_mark import marked, new_mark, reserve_many_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from segmented.clock import Clock, Duration
    from segmented.protocol import Operation

    ItemT = TypeVar("ItemT")
    AnswerT = TypeVar("AnswerT")

Found = tuple["Granted | Refusal", float, "Shard"]
"""The answer to a grant, the local start time of its lease, and the shard that gave it."""
ROUNDS_MAX: Final = 3
FRESH_SECONDS: Final = 0.1
"""Maximum age of a refusal when its batch is answered; an older one is requested again, up to `ROUNDS_MAX` rounds."""
CUSTOMER_WANTED: Final = "limits its customers, so an order's shard is that of its customer: name the customer of"


class ShardedPlans:
    """Routes a pool's operations to its shards. The directory is read once, and never changes."""

    _books: TransferBooks | None = None
    """The order database, if the pool has a gate."""

    def __init__(self, settings: PoolSettings, sold_out_mark: Duration, clock: Clock) -> None:
        """Create the plans for the pool of `settings`."""
        checked_id(settings.sku, "sku", bytes_max=SKU_BYTES_MAX)  # a shard cannot be split again
        self.settings = settings
        self.mark = new_mark(settings.sku, sold_out_mark, clock)
        self._clock = clock
        self._gathering: Gathering | None = None
        self._noted = Noted(clock)

    def found(self) -> Plan[Gathering]:
        """Return the gatherer; reads the directory at the first call. Raises PoolMissing."""
        if self._gathering is None:
            self._gathering = Gathering((yield from directory_plan(self.settings.sku)), self._clock, self._books)
        return self._gathering

    @property
    def is_found(self) -> bool:
        """Return whether the directory is read."""
        return self._gathering is not None

    def note_return(self) -> None:
        """Discard local refusals, because units came back."""
        self.mark.clear()
        if self._gathering is not None:
            self._gathering.shortage.clear()

    def home(self, gathering: Gathering, order_id: str, customer_id: str | None) -> Shard:
        """Return the home shard of an order. Raises InvalidInput for an id that is none, and for a missing customer."""
        order_id = checked_id(order_id, "order id")
        if customer_id is not None:
            customer_id = checked_id(customer_id, "customer id")
        return self._home(gathering, order_id, customer_id)

    def _home(self, gathering: Gathering, order_id: str, customer_id: str | None) -> Shard:
        """Return the home shard of an order with checked ids."""
        directory = gathering.directory
        if directory.limit_per_customer is None:
            name = order_id
        elif customer_id is None:
            raise InvalidInput(f"pool {directory.sku!r} {CUSTOMER_WANTED} order {order_id!r}")
        else:
            name = customer_id
        return gathering.shards[home_of(name, len(gathering.shards))]

    # --- opening, reading, changing ---

    def open(self, operation: op.OpenPool, shards: int) -> Plan[Opened | AlreadyOpen]:
        """Open all shards."""
        count = self.settings.shard_count(shards, operation.stock, operation.segment_count)
        return (yield from open_plan(operation, count, self._opened))

    def _opened(self, asked: Sequence[op.OpenPool]) -> Plan[list[Opened | AlreadyOpen]]:
        return (yield from opened_ungated_plan(asked))

    def state(self) -> Plan[ShardedState]:
        """Add up all shards."""
        return (yield from state_plan((yield from self.found()).directory))

    def restock(self, operation: op.Restock) -> Plan[Restocked | Closed]:
        """Add units to one shard, from which they are brought to others as needed."""
        home = yield from self._home_of_change(operation.change_id)
        yield from self._require_ungated(home, "restock")
        return (yield from self._returning(perform(replace(operation, sku=home))))

    def withdraw(self, operation: op.Withdraw) -> Plan[Restocked | TooFew]:
        """Remove units from one shard, after bringing them there if necessary."""
        gathering = yield from self.found()
        home = yield from self._home_of_change(operation.change_id)
        yield from self._require_ungated(home, "withdraw")
        at_home = replace(operation, sku=home)
        return (yield from withdrawn_plan(gathering, home, operation.units, lambda: perform(at_home)))

    def resize(self, segments: int) -> Plan[Resized]:
        """Split the segments over the shards."""
        directory = (yield from self.found()).directory
        shares = directory.shares(self.settings.sharded_segments(segments, len(directory.salts)))
        answers = yield from self._resized(directory.shards, shares)
        state = summed(directory, [answer.state for answer in answers])
        return Resized(state, replay=all(answer.replay for answer in answers))

    def _resized(self, shards: Sequence[Shard], shares: Sequence[int]) -> Plan[list[Resized]]:
        yield from self._require_ungated(shards[0], "resize")
        return (yield from all_plan(map(op.Resize, shards, shares)))

    def close(self) -> Plan[PoolClosed]:
        """Close every shard."""
        directory = (yield from self.found()).directory
        answers = yield from self._closed(directory.shards)
        state = summed(directory, [answer.state for answer in answers])
        return PoolClosed(state, replay=all(answer.replay for answer in answers))

    def _closed(self, shards: Sequence[Shard]) -> Plan[list[PoolClosed]]:
        return (yield from all_plan(map(op.ClosePool, shards)))

    def assign(self, assignment: Assignment) -> Plan[Assigned]:
        """Name the workers of every shard."""
        directory = (yield from self.found()).directory
        answers = yield from self._assigned([op.AssignPool(shard, assignment) for shard in directory.shards])
        state = summed(directory, [answer.state for answer in answers])
        return Assigned(state, replay=all(answer.replay for answer in answers))

    def _assigned(self, operations: Sequence[op.AssignPool]) -> Plan[list[Assigned]]:
        return (yield from all_plan(operations))

    # --- taking ---

    def grant(self, operation: op.Grant, timeout: float | None, *, fair: bool) -> Plan[Found]:
        """Grant from the order's home shard, after bringing units there if necessary."""
        order, partial, keeps = operation.order, operation.partial, operation.keep_refusal
        gathering = yield from self.found()
        home = self.home(gathering, order.order_id, order.customer_id)
        began_at = yield from perform(Now())
        deadline = inf if timeout is None else began_at + timeout
        attempt = granting(replace(operation, sku=home), timeout, began_at, fair=fair)
        plan = served_plan(gathering, home, order, attempt, partial=partial, keeps_refusal=keeps, deadline=deadline)
        answer, asked_at = yield from marked(self.mark, order, plan, partial=partial, is_kept=keeps)
        return answer, asked_at, home

    def granted(
        self, operation: op.Grant, timeout: float | None, *, fair: bool
    ) -> Plan[tuple[Granted | Refusal, float]]:
        """Do the same; without the shard, for its pool's own grant."""
        answer, asked_at, _ = yield from self.grant(operation, timeout, fair=fair)
        return answer, asked_at

    def reserve(self, operation: op.Reserve) -> Plan[Taken]:
        """Reserve at the order's home shard, after bringing units there if necessary."""
        plan = self.reserve_on(operation, None)
        return (yield from marked(self.mark, operation.order, plan, partial=operation.partial))[0]

    def reserve_on(self, operation: op.Reserve, first: tuple[Taken, float] | None) -> Plan[tuple[Taken, float]]:
        """Reserve without asking the mark; `first` is the home shard's earlier answer, requested without `partial`."""
        order = operation.order
        gathering = yield from self.found()
        home = self.home(gathering, order.order_id, order.customer_id)
        if first is None and not self._noted.covers(operation.hold_ms):
            yield from self._noted.hold_plan(home, operation.hold_ms)
        attempt = reserving(replace(operation, sku=home))
        return (yield from served_plan(gathering, home, order, attempt, partial=operation.partial, first=first))

    def reserve_many(self, operation: op.ReserveMany) -> Plan[list[Taken | SegmentedError]]:
        """Reserve at each order's home shard, many in a step; orders that need other shards follow one by one."""
        return (yield from reserve_many_marked(self.mark, operation, self._reserve_many))

    def _reserve_many(self, operation: op.ReserveMany) -> Plan[list[Taken | SegmentedError]]:
        found = dict(enumerate(self._homes((yield from self.found()), operation.orders)))
        homes = {index: home for index, home in found.items() if not isinstance(home, InvalidInput)}
        answers: dict[int, Taken | SegmentedError] = {
            index: home for index, home in found.items() if isinstance(home, InvalidInput)
        }
        refused_at: dict[int, float] = {}
        for _ in range(ROUNDS_MAX):  # while others were served one by one, refusals may have become too old
            oldest = (yield from perform(Now())) - FRESH_SECONDS
            stale = [index for index in homes if index not in answers or refused_at.get(index, oldest) < oldest]
            if not stale:
                break
            answers |= yield from self._reserve_round(operation, {index: homes[index] for index in stale}, refused_at)
        return [answers[index] for index in range(len(operation.orders))]

    def _reserve_round(
        self, operation: op.ReserveMany, homes: dict[int, Shard], refused_at: dict[int, float]
    ) -> Plan[dict[int, Taken | SegmentedError]]:
        """Reserve for the orders with the indices of `homes`; notes the time of each refusal."""
        gathering = yield from self.found()
        if not self._noted.covers(operation.hold_ms):
            yield from self._noted.hold_plan(gathering.shards[0], operation.hold_ms)
        asked_at = yield from perform(Now())
        found = yield from paged_plan(
            list(homes.values()),
            [operation.orders[index] for index in homes],
            lambda home, page: replace(operation, sku=home, orders=page, partial=False),
        )
        answers: dict[int, Taken | SegmentedError] = {}
        gathered: set[Shard] = set()
        for (index, home), answer in zip(homes.items(), found, strict=True):
            order, answers[index] = operation.orders[index], answer
            refused_at.pop(index, None)
            if isinstance(answer, Busy | SoldOut) or (operation.partial and isinstance(answer, LimitReached)):
                # The home is tried again if units may have come since.
                has_more = home in gathered and gathering.shortage.of(order.quantity) is None
                is_stale = isinstance(answer, Busy) or has_more
                gathered.add(home)
                attempt = reserving_one(replace(operation, sku=home, orders=(order,)))
                first = None if is_stale else (answer, asked_at)
                plan = served_plan(gathering, home, order, attempt, partial=operation.partial, first=first)
                try:
                    said, at = yield from plan
                except SegmentedError as error:
                    answers[index] = error
                else:
                    answers[index] = said
                    if isinstance(said, SoldOut):
                        refused_at[index] = at
        return answers

    def submit(self, operation: op.ReserveMany) -> Plan[list[Submission]]:
        """Accept orders: one step takes the units at an order's home shard and writes its outbox entry."""
        gathering = yield from self.found()
        if not self._noted.is_fresh:
            after_ms = operation.publish_after_ms
            yield from all_plan(op.NotePool(shard, sweep_ms=after_ms, submits=True) for shard in gathering.shards)
            self._noted.note()
        answers = yield from self.reserve_many(operation)
        pairs = zip(self._homes(gathering, operation.orders), answers, strict=True)
        return [
            home if isinstance(home, InvalidInput) else answer if isinstance(answer, SegmentedError) else (home, answer)
            for home, answer in pairs
        ]

    # --- deciding ---

    def confirm(self, operation: op.Confirm, customer_id: str | None) -> Plan[Settled]:
        """Confirm at the order's home shard."""
        home = self.home((yield from self.found()), operation.order_id, customer_id)
        return as_confirmed((yield from perform(replace(operation, sku=home))))

    def cancel(self, operation: op.Cancel, customer_id: str | None) -> Plan[Settled]:
        """Cancel at the order's home shard."""
        home = self.home((yield from self.found()), operation.order_id, customer_id)
        return as_cancelled((yield from self._returning(perform(replace(operation, sku=home)))))

    def settle_many(
        self, state: Literal["confirmed", "cancelled"], orders: Iterable[str | Order]
    ) -> Plan[list[Settled | SegmentedError]]:
        """End many reservations, each at its home shard, many in a step."""
        operation, homes = yield from self._settling(state, orders)
        plan = paged_plan(homes, operation.order_ids, lambda home, page: replace(operation, sku=home, order_ids=page))
        if state == "confirmed":
            return all_as_asked(as_confirmed, (yield from plan))
        return all_as_asked(as_cancelled, (yield from self._returning(plan)))

    def _settling(
        self, state: Literal["confirmed", "cancelled"], orders: Iterable[str | Order]
    ) -> Plan[tuple[op.SettleMany, list[Shard]]]:
        """Return the operation that ends these orders, and the home of each."""
        found = orders if isinstance(orders, str) else tuple(checked_list(orders, f"orders to be {state}"))
        ids = found if isinstance(found, str) else [one.order_id if isinstance(one, Order) else one for one in found]
        operation = self.settings.settle_many(state, ids)
        gathering = yield from self.found()
        customers = [one.customer_id if isinstance(one, Order) else None for one in found]
        return operation, list(map(self._home, [gathering] * len(found), operation.order_ids, customers))

    def expire(self, limit: int) -> Plan[tuple[Settled, ...]]:
        """Give back the units of expired holds, shard by shard; an unreachable shard does not stop the others."""
        expired: list[Settled] = []
        failure: StoreError | None = None
        for shard in (yield from self.found()).shards:
            if len(expired) < limit:
                try:
                    expired += yield from self._expired(shard, limit - len(expired))
                except StoreError as error:
                    failure = failure or error
        if failure is not None and not expired:  # otherwise the next call meets the failure again
            raise failure
        return tuple(expired)

    def _expired(self, shard: Shard, limit: int) -> Plan[tuple[Settled, ...]]:
        return (yield from self._returning(expire_plan(shard, limit)))

    def finish_transfers(self) -> Plan[int]:
        """Complete all pending transfers; return how many there were."""
        gathering = yield from self.found()
        return (yield from self._returning(gathering.finish_all_plan()))

    # --- pieces ---

    def _require_ungated(self, shard: Shard, change: str) -> Plan[None]:
        if (yield from perform(op.ReadPool(shard))).gated:
            raise ChangeGated(self.settings.sku, change)

    def _homes(self, gathering: Gathering, orders: Iterable[Order]) -> Iterator[Shard | InvalidInput]:
        """Yield the shard of each order, or why it cannot be determined."""
        for order in orders:
            try:
                yield self._home(gathering, order.order_id, order.customer_id)
            except InvalidInput as error:
                yield error

    def _home_of_change(self, change_id: str) -> Plan[Shard]:
        shards = (yield from self.found()).shards
        return shards[home_of(change_id, len(shards))]

    def _returning(self, plan: Plan[AnswerT]) -> Plan[AnswerT]:
        try:
            return (yield from plan)
        finally:
            self.note_return()


def paged_plan(
    homes: Sequence[Shard],
    items: Sequence[ItemT],
    make: Callable[[Shard, tuple[ItemT, ...]], Operation[tuple[AnswerT, ...]]],
) -> Plan[list[AnswerT | SegmentedError]]:
    """Perform for each item the operation that `make` builds: all shards concurrently, up to 1,000 items in a step.

    A shard that cannot be reached fails only its own items.
    """
    indices: dict[Shard, list[int]] = defaultdict(list)
    for index, home in enumerate(homes):
        indices[home].append(index)
    answers: list[Any] = [None] * len(items)
    for first in range(0, max(map(len, indices.values()), default=0), op.BATCH_MAX):
        pages = [(home, own[first : first + op.BATCH_MAX]) for home, own in indices.items() if len(own) > first]
        operations = tuple(make(home, tuple(items[index] for index in page)) for home, page in pages)
        deadline = (yield from perform(Now())) + ALL_SECONDS
        for (_, page), found in zip(pages, (yield from perform(Batch(operations, deadline))), strict=True):
            said = [found] * len(page) if isinstance(found, SegmentedError) else found
            for index, answer in zip(page, said, strict=True):
                answers[index] = answer
    return answers
