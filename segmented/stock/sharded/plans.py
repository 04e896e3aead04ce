"""The operations of a pool in shards, as plans, run by the sync and the async pool and by the simulator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from segmented import protocol as op
from segmented.errors import ChangeGated, InvalidInput, SegmentedError, StoreError, StoreRefused
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
from segmented.models.orders import all_as_asked, as_cancelled, as_confirmed
from segmented.plans import Batch, Now, Plan, perform
from segmented.stock.outbox import UNASKED, Noted, Outbox, to_publish
from segmented.stock.plans import expire_plan, fair_grant_plan, grant_plan, reserve_plan
from segmented.stock.settings import PoolSettings, checked_list
from segmented.stock.sharded.gathering import Gathering
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
from segmented.stock.sold_out_mark import SoldOutMark, marked, reserve_many_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from segmented.clock import Clock, Duration
    from segmented.protocol import Operation
    from segmented.stock.sharded.gathering import TransferBooks

    ItemT = TypeVar("ItemT")

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)

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
        self.mark = SoldOutMark(sold_out_mark, clock, settings.sku)
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
                one = op.Reserve(home, order, operation.hold_ms, publish_after_ms=operation.publish_after_ms)
                attempt = reserving(one)
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


# --- serving an order that its home shard cannot serve alone: bring units there and try again, or refuse exactly ---
#
# Reservations and grants share this code: an `Attempt` asks the home shard once, and returns the time of its request.
# A submitted order goes to its home shard's outbox, and workers are notified shard by shard: to a worker a shard is a
# pool like any other; its envelopes, sweep and dead letters are those of that pool.

TRIES_MAX: Final = 200
"""Each failed try means that other orders took the units, or that expired holds were returned."""
Submission = tuple["Shard", "Taken"] | SegmentedError
"""A submitted order's answer and its home, or why it was not accepted."""


class Attempt(Protocol[AnswerT_co]):
    """Asks the home shard once; returns the answer and the local start time of a lease."""

    def __call__(self, *, partial: bool = False, is_final: bool = False) -> Plan[tuple[AnswerT_co, float]]:
        """Ask; `partial` accepts fewer units if fewer are left, `is_final` lets the order's state keep a refusal."""


def served_plan(
    gathering: Gathering,
    home: Shard,
    order: Order,
    attempt: Attempt[AnswerT],
    *,
    partial: bool,
    keeps_refusal: bool = False,
    deadline: float = inf,
    first: tuple[AnswerT, float] | None = None,
) -> Plan[tuple[AnswerT | SoldOut | Busy, float]]:
    """Serve an order from all shards; `first` is the home shard's earlier answer, requested without `partial`.

    Waits for no other process beyond the local time `deadline`, except for answers.
    """
    answer, asked_at = first or (yield from attempt())
    for _ in range(TRIES_MAX):
        if isinstance(answer, SoldOut) and not answer.replay:
            free = yield from gathering.bring_plan(home, order.quantity, deadline)
            if free is None:  # the units are there, or were a moment ago
                answer, asked_at = yield from attempt()
            elif partial and free.available:
                yield from gathering.bring_plan(home, free.available, deadline)
                answer, asked_at = yield from attempt(partial=True)
            else:
                may_have_twin = free.asked_at >= asked_at and free.sequences[home.number] != answer.sequence
                if keeps_refusal or may_have_twin:  # a concurrent call for the same order may have been served
                    answer, asked_at = yield from attempt(partial=partial, is_final=True)
                    if isinstance(answer, Busy) and not answer.is_in_hand:  # units have come, but no segment is free
                        answer, asked_at = yield from attempt(partial=partial)
                        continue
                    if not isinstance(answer, SoldOut) or answer.replay:
                        return answer, asked_at
                now = yield from perform(Now())
                age_ms = ceil((now - free.asked_at) * 1_000)
                refused = replace(
                    answer, available=free.available, reserved=free.reserved, age_ms=age_ms, free_in_ms=free.free_in_ms
                )
                return refused, free.asked_at
        elif partial and isinstance(answer, LimitReached) and answer.taken < answer.limit:
            left = answer.limit - answer.taken
            free = yield from gathering.bring_plan(home, left, deadline)
            if free is not None and free.available:
                yield from gathering.bring_plan(home, free.available, deadline)
            answer, asked_at = yield from attempt(partial=True)
        else:
            return answer, asked_at
    return Busy(order.order_id, 0, 0), asked_at


def reserving(operation: op.Reserve) -> Attempt[Taken]:
    """Build the attempt of a reservation; a submitted order enters the outbox in the same step."""

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Taken, float]]:
        del is_final  # refusals of reservations are not kept
        asked_at = yield from perform(Now())
        return (yield from reserve_plan(replace(operation, partial=partial))), asked_at

    return attempt


def granting(operation: op.Grant, timeout: float | None, began_at: float, *, fair: bool) -> Attempt[Granted | Refusal]:
    """Build the attempt of a grant. All attempts wait until `timeout` after `began_at`; a final one does not wait."""
    deadline = inf if timeout is None else began_at + timeout

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Granted | Refusal, float]]:
        now = yield from perform(Now())
        left = 0.0 if is_final else None if timeout is None else max(0.0, deadline - now)
        asked = replace(operation, partial=partial, keep_refusal=operation.keep_refusal and is_final)
        return (yield from (fair_grant_plan if fair and not is_final else grant_plan)(asked, left))

    return attempt


def withdrawn_plan(
    gathering: Gathering, home: Shard, units: int, attempt: Callable[[], Plan[Restocked | TooFew]]
) -> Plan[Restocked | TooFew]:
    """Remove units from one shard by `attempt`, after bringing those of the others there if necessary."""
    for _ in range(TRIES_MAX):
        answer = yield from attempt()
        if not isinstance(answer, TooFew) or answer.available >= units:  # a rebuild has undone it: the units are sold
            return answer
        free = yield from gathering.bring_plan(home, units)
        if free is not None:
            answer = yield from attempt()  # a concurrent call of the same withdrawal may have finished
            return replace(answer, available=free.available) if isinstance(answer, TooFew) else answer
    message = f"orders took the units of {gathering.directory.sku!r} faster than they could be withdrawn: try again"
    raise StoreRefused(message)


def sharded_outbox(sku: str, outbox: Outbox | None) -> Outbox:
    """Return how a pool in shards submits orders. Raises InvalidInput for an outbox that would refuse wrongly."""
    found = outbox or UNASKED
    if found.decides != "at acceptance":
        raise InvalidInput(
            f"decides={found.decides!r} is not supported for {sku!r} in shards: a worker decides in one shard, and "
            "would refuse orders while another has their units"
        )
    return found


def publish(outbox: Outbox, submissions: Iterable[Submission]) -> None:
    """Notify workers, in messages that have orders of one shard each."""
    if outbox.publisher is None:
        return
    answers: defaultdict[Shard, list[Taken]] = defaultdict(list)
    for one in submissions:
        if not isinstance(one, SegmentedError):
            answers[one[0]].append(one[1])
    for home, found in answers.items():
        for segment, waiting in to_publish(found).items():
            outbox.publisher.put(home, waiting, segment)
