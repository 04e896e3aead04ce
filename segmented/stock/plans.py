"""Plans of the pool's operations that take more than one step.

Fair grants go in order of arrival, across processes: only the holder of a fair lock, the door, waits for a segment.
Without it each process has a queue of its own, and a freed segment goes to whichever queue's head comes first. The door
only decides the order; units and segments stay guarded as usual. So if the door expires while its holder is paused, the
order of arrival is lost, never a unit.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, cast, get_args

from segmented import protocol as op
from segmented.errors import AcquireTimeout, InvalidInput, SegmentedError, StockError, StoreError
from segmented.keys import shard_keys
from segmented.locks.fair import FairClaim, FairTry
from segmented.locks.handle import acquire_plan
from segmented.models import Busy, Granted, Lost, OrderRecord, PoolState, Refusal, Renewed, Reserved, Settled, Taken
from segmented.models.orders import OrderState, took_segment
from segmented.models.shards import SHARD_MARK
from segmented.models.submitted import BegunOrder, TakenOrders
from segmented.plans import Now, Offer, Plan, Try, pause, perform, undo_after, wait_in_line
from segmented.plans.line import AT_ONCE
from segmented.plans.waiting import GONE_SECONDS, MILLISECOND, undone
from segmented.protocol.lock import NEWCOMER
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from segmented.models import OrderRecord
    from segmented.models.pools import ScannedKey
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

DUE_BATCH: Final = 100
"""Expired holds processed in one step, so that other requests are served in between."""
LISTED_MAX: Final = 5_000
"""Maximum number of expired holds that one call reads: a longer list would block the server."""
COMING_BACK_MAX: Final = 64
"""Maximum number of tries of a grant that does not wait, while expired holds are returned for it."""
STANDS: Final = (StockError, StoreError)
"""Exceptions after which a grant is not undone: a repeat continues."""
LOOK_FIRST: Final = 0.05
"""Seconds until a second delivery asks for the first time whether the first has ended."""
STOPPED_MS: Final = 2_000
"""Milliseconds after which an order is published again whose worker was stopped while it waited."""
STOPPED: Final = "its worker was stopped while it waited for a segment"
BUSY_TRIES_MAX: Final = 1_000
"""Each Busy of a reservation returned 16 expired holds, so this many tries clear 16,000."""
DOOR_TTL_MS: Final = 10_000
ROUND_SECONDS: Final = 3.0
"""Seconds to wait for a segment before the door is renewed."""
Found = tuple["Granted | Refusal", float]


def grant_plan(operation: op.Grant, timeout: float | None) -> Plan[Found]:
    """Wait up to `timeout` seconds for a free segment; return the answer and the local start time of the lease.

    A cancelled wait returns what it may have taken, unless another holder has the order. If the store did not answer,
    it may have taken the units: they stay reserved for a repeat, and the caller must free the segment. A second
    delivery of an order that another holder is processing does not queue for a segment, and no message tells it of the
    order's end: it asks again after LOOK_FIRST seconds, then in intervals that double up to GONE_SECONDS, and when that
    holder's lease may have expired.
    """
    look_seconds = LOOK_FIRST
    freed = shard_keys(operation.sku).freed
    trying = first = _first_try(operation, freed, timeout)
    while True:
        answer, asked_at = yield from _waited(operation, trying)
        if isinstance(answer, Granted):
            return answer, asked_at
        for _ in range(COMING_BACK_MAX):
            if trying.timeout != 0 or not isinstance(answer, Busy) or answer.is_in_hand or answer.free_in_ms != 0:
                break
            asked_at = yield from perform(Now())  # expired holds are being returned, a few with each call
            answer = yield from perform(operation)
        if answer is None:  # the deadline came before this waiter's first turn
            return Busy(operation.order.order_id, 0, None), asked_at
        if not (isinstance(answer, Busy) and answer.is_in_hand) or trying.timeout == 0:
            return answer, asked_at
        deadline = inf if timeout is None else first.asked_at + timeout
        now = yield from perform(Now())
        lapses_at = now + ((answer.free_in_ms or 0) + 1) * MILLISECOND
        yield from pause(f"{freed}:in-hand", min(lapses_at, deadline, now + look_seconds))
        look_seconds = min(2 * look_seconds, GONE_SECONDS)
        left = None if timeout is None else max(0.0, deadline - (yield from perform(Now())))
        trying = _first_try(operation, freed, left)


def _first_try(operation: op.Grant, channel: str, timeout: float | None) -> Try[Granted | Refusal]:
    """Return the attempt with which a wait begins; one that will not wait takes a free segment also if others wait."""
    return Try(operation if timeout == 0 else replace(operation, party=NEWCOMER), channel, timeout, joins_if_heard=True)


def _waited(operation: op.Grant, trying: Try[Granted | Refusal]) -> Plan[tuple[Granted | Refusal | None, float]]:
    """Wait for a segment, once; return the last answer, if any, and the local time just before it was sent."""
    undo, offered = _cancelling(operation), partial(_offer, operation)
    is_busy, has_taken = _needs_segment, took_segment
    return _in_line(operation, trying, is_busy=is_busy, has_taken=has_taken, undo=undo, offered=offered, stands=STANDS)


def _in_line(
    operation: op.Grant | op.TakeOrders,
    trying: Try[AnswerT],
    *,
    is_busy: Callable[[AnswerT], bool],
    has_taken: Callable[[AnswerT], object],
    undo: Callable[[], Operation[object]],
    offered: Callable[[Operation[AnswerT]], Offer],
    stands: tuple[type[BaseException], ...],
) -> Plan[tuple[AnswerT | None, float]]:
    """Make the first attempt, and wait in the pool's line if it does not get a segment."""
    try:
        tried: tuple[AnswerT, float] | None = yield trying
        if tried is not None and (trying.timeout == 0 or not is_busy(tried[0])):
            return tried[0], trying.asked_at
        return (
            yield from wait_in_line(
                trying,
                is_tried=tried is not None,
                is_busy=is_busy,
                stands=stands,
                offered=offered,
                look_seconds=GONE_SECONDS,
                in_line=lambda party: cast("Operation[AnswerT]", replace(operation, party=party)),
                out_of_line=partial(op.LeavePoolLine, operation.sku),
                has_taken=has_taken,
            )
        )
    except BaseException as error:
        yield from undo_after(error, undo, trying, stands)
        raise


def unheard_plan(operation: op.Grant, error: BaseException, replays: list[bool], *, is_gated: bool) -> Plan[None]:
    """Give up a grant that its caller does not get because of `error`; `replays` says of each answer if it repeated.

    With a gate the order keeps its units, a repeat continues, and nobody has the segment. Without one the units go
    back, unless an earlier call has them; after a SegmentedError there is nothing to give up.
    """
    if is_gated:
        if not operation.repeatable or not all(replays):
            yield from leave_plan(operation.sku, operation.order.order_id, operation.holder_id)
    elif not isinstance(error, SegmentedError) and not any(replays):
        yield from undone(_cancelling(operation), AT_ONCE)


def _offer(operation: op.Grant, attempt: Operation[Granted | Refusal]) -> Offer:
    """Offer a grant's attempt. If its waiter is gone, its segment is freed, unless a repeat may continue with it."""
    free = op.ReleaseGrant(operation.sku, operation.order.order_id, operation.holder_id)
    undo = (_cancelling(operation)(), free)  # a gated pool refuses to cancel
    return Offer(attempt, undo, undo_late=() if operation.repeatable else (free,))


def _cancelling(operation: op.Grant) -> Callable[[], op.Cancel]:
    return partial(op.Cancel, operation.sku, operation.order.order_id, operation.holder_id, unheard=True)


def _needs_segment(answer: Granted | Refusal) -> bool:
    return isinstance(answer, Busy) and not answer.is_in_hand


def reserve_plan(operation: op.Reserve) -> Plan[Taken]:
    """Reserve; while many expired holds are being returned, try again, a bounded number of times."""
    answer: Taken = yield operation
    for _ in range(BUSY_TRIES_MAX):
        if not isinstance(answer, Busy):
            break
        answer = yield operation
    return answer


def reserve_many_plan(operation: op.ReserveMany) -> Plan[list[Taken | SegmentedError]]:
    """Reserve many, up to 1,000 in a step; orders that must wait for expired holds are tried again."""
    answers: list[Taken | SegmentedError] = []
    for first in range(0, len(operation.orders), op.BATCH_MAX):
        page = operation.orders[first : first + op.BATCH_MAX]
        found: list[Taken | SegmentedError] = yield replace(operation, orders=page)
        answers += found
    return (yield from while_busy_plan(operation, answers))


def while_busy_plan(
    operation: op.ReserveMany, answers: list[Taken | SegmentedError]
) -> Plan[list[Taken | SegmentedError]]:
    """Try again the orders that must wait for expired holds, a bounded number of times."""
    for _ in range(BUSY_TRIES_MAX):
        left = [index for index, answer in enumerate(answers) if type(answer) is Busy][: op.BATCH_MAX]
        if not left:
            break
        again = replace(operation, orders=tuple(operation.orders[index] for index in left))
        for index, answer in zip(left, (yield from perform(again)), strict=True):
            answers[index] = answer
    return answers


def one_plan(plan: Plan[AnswerT]) -> Plan[list[AnswerT]]:
    """Run a plan for one order; returns its answer in a list."""
    return [(yield from plan)]


def settle_many_plan(operation: op.SettleMany) -> Plan[list[Settled | SegmentedError | None]]:
    """End many reservations, up to 1,000 in a step."""
    answers: list[Settled | SegmentedError | None] = []
    for first in range(0, len(operation.order_ids), op.BATCH_MAX):
        page = operation.order_ids[first : first + op.BATCH_MAX]
        answers += yield from perform(replace(operation, order_ids=page))
    return answers


def renew_plan(operation: op.RenewGrant) -> Plan[tuple[Renewed | Lost, float]]:
    """Renew, and return the answer with the local time from which it counts."""
    asked_at = yield from perform(Now())
    return (yield from perform(operation)), asked_at


def expire_plan(sku: str, limit: int) -> Plan[tuple[Settled, ...]]:
    """Give back the units of expired holds, up to `limit` orders, a bounded number in one step."""
    expired: list[Settled] = []
    is_more_due = True
    while is_more_due and len(expired) < limit:
        settled, is_more_due = yield from perform(op.ExpireDue(sku, min(DUE_BATCH, limit - len(expired))))
        expired += settled
        if not settled:  # live leases protect the due orders
            break
    return tuple(expired)


def extend_plan(operation: op.ExtendHold) -> Plan[Reserved | Settled]:
    """Lengthen a hold; if it has ended, give its units back and return how the order has ended.

    Raises PoolGated if the order database must decide that.
    """
    answer: Reserved | Settled | None = None
    while answer is None:  # the hold may be lengthened between two steps
        answer = (yield from perform(operation)) or (yield from perform(op.Expire(operation.sku, operation.order_id)))
    return answer


def leave_plan(sku: str, order_id: str, holder_id: str) -> Plan[None]:
    """Free the segment of a grant; its units stay reserved. A failure is not raised: the lease ends on its own."""
    with suppress(SegmentedError):
        yield from perform(op.ReleaseGrant(sku, order_id, holder_id))


def scanned_plan(sku: str, key: ScannedKey) -> Plan[dict[str, str]]:
    """Read all names of a key, with their values; one that comes meanwhile may be missing."""
    found: dict[str, str] = {}
    cursor = -1
    while cursor != 0:
        cursor, page = yield from perform(op.ScanKey(sku, key, max(cursor, 0)))
        found |= page
    return found


def due_plan(sku: str, limit: int) -> Plan[list[OrderRecord]]:
    """Read up to `limit` orders whose hold has expired, at most LISTED_MAX, the longest expired first."""
    due = (yield from perform(op.ListDue(sku, min(limit, LISTED_MAX))))[:limit]
    records: list[OrderRecord] = []
    for first in range(0, len(due), op.BATCH_MAX):
        found = yield from perform(op.ReadOrders(sku, due[first : first + op.BATCH_MAX]))
        records += [record for record in found if record is not None and record.state == "reserved"]
    return records


def available_plan(*states: PoolState) -> Plan[int]:
    """Return the free units of pools or shards, with those of holds that have ended: an order that asks gets them."""
    units = 0
    for state in states:
        due = (yield from due_plan(state.sku, LISTED_MAX)) if state.reserved else []
        units += state.available + sum(record.quantity for record in due)
    return units


def fair_grant_plan(operation: op.Grant, timeout: float | None) -> Plan[Found]:
    """Grant in order of arrival; otherwise as `grant_plan`. An order that is already known does not wait."""
    (record,) = yield from perform(op.ReadOrders(operation.sku, (operation.order.order_id,)))
    if record is not None:
        return (yield from grant_plan(operation, timeout))
    deadline = inf if timeout is None else (yield from perform(Now())) + timeout
    door = door_of(operation, timeout)
    while True:
        try:
            yield from acquire_plan(door, timeout, is_patient=False)
        except AcquireTimeout:
            return Busy(operation.order.order_id, 0, None), (yield from perform(Now()))
        found: Found | None = None
        try:
            found = yield from _inside(operation, door, deadline)
            yield from _leave(door)
        except GeneratorExit:  # the process is gone: the door's lease expires
            raise
        except BaseException:
            if found is not None and isinstance(found[0], Granted) and not found[0].replay:
                # Nobody learns of the grant, so its units go back, as those of an attempt that was cancelled.
                yield from undone(_cancelling(operation), deadline)
            yield from _leave(door)
            raise
        if found is not None:
            return found
        if timeout is not None:
            timeout = max(0.0, deadline - (yield from perform(Now())))


def door_of(operation: op.Grant, timeout: float | None) -> FairTry:
    """Return the claim to the door with which a fair grant waits, so that it can be released after a lost reply."""
    name = f"pool:{operation.sku}:door".replace(SHARD_MARK, " shard ")
    return (FairTry if timeout == 0 else FairClaim)(name, operation.holder_id, DOOR_TTL_MS)


def _inside(operation: op.Grant, door: FairTry, deadline: float) -> Plan[Found | None]:
    """Wait for a segment while holding the door; None if the door was lost meanwhile."""
    while True:
        left = max(0.0, deadline - (yield from perform(Now())))
        answer, asked_at = yield from grant_plan(operation, min(left, ROUND_SECONDS))
        if not isinstance(answer, Busy) or answer.is_in_hand or left <= ROUND_SECONDS:
            return answer, asked_at
        if isinstance((yield from perform(door.renewing(DOOR_TTL_MS))), Lost):
            return None


def _leave(door: FairTry) -> Plan[None]:
    with suppress(StoreError):  # its lease expires on its own
        yield from perform(door.releasing())


def take_plan(operation: op.TakeOrders, channel: str, timeout: float) -> Plan[tuple[TakenOrders | None, float]]:
    """Begin work; if it needs a segment and none is free, wait for one. None: the deadline came before a turn.

    Also returns the local time from which the orders are the worker's. If the wait is ended by something other than a
    SegmentedError, the orders that were perhaps begun are given back.
    """
    trying = Try(operation, channel, timeout, joins_if_heard=True)
    back = _giving_back(operation)

    def offered(attempt: Operation[TakenOrders]) -> Offer:
        return Offer(attempt, undo=(back,), undo_late=(back,))

    return _in_line(
        operation,
        trying,
        is_busy=_lacks_segment,
        has_taken=TakenOrders.lease,
        undo=lambda: back,
        offered=offered,
        stands=(SegmentedError,),
    )


def _giving_back(operation: op.TakeOrders) -> op.PutOff:
    head = (operation.sku, operation.order_ids, operation.holder_id, STOPPED_MS)
    return op.PutOff(*head, counts=False, begun_max=operation.begun_max, reason=STOPPED, hold_ms=operation.hold_ms)


def _lacks_segment(taken: TakenOrders) -> bool:
    is_any_begun = any(isinstance(one, BegunOrder) for one in taken.orders)
    return not is_any_begun and any(isinstance(one, Busy) and not one.is_in_hand for one in taken.orders)


# --- all orders of a pool, each once, in bounded pages ---
#
# A scan of the server may give an id twice while the sale runs, so the ids are collected first, in a temporary file
# when they are many, and the records are read after that. An order that arrives meanwhile may be missing.

STATES: Final[tuple[OrderState, ...]] = get_args(OrderState)


def checked_state(state: OrderState | None) -> OrderState | None:
    """Return the state of the orders to list, or None for all. Raises InvalidInput for a state that no order has."""
    if state is not None and state not in STATES:
        raise InvalidInput(f"state={state!r} is not one of {', '.join(map(repr, STATES))}")
    return state


def ids_plan(sku: str) -> Plan[Spill]:
    """Collect the ids of all orders. Raises PoolMissing."""
    ids, cursor = Spill((yield from perform(op.ReadPool(sku))).order_count), 0
    while True:
        cursor, page = yield from perform(op.ScanKey(sku, "orders", cursor))
        ids.add("", dict(page))
        if not cursor:
            return ids


def reads(sku: str, ids: Spill) -> Iterator[op.ReadOrders]:
    """Yield the operations that read the orders, up to 1,000 with each."""
    for part in range(ids.part_count):
        own = tuple(dict.fromkeys(order_id for _, order_id in ids.read(part)))
        for first in range(0, len(own), op.BATCH_MAX):
            yield op.ReadOrders(sku, own[first : first + op.BATCH_MAX])


def chosen(records: Iterable[OrderRecord | None], state: OrderState | None) -> Iterator[OrderRecord]:
    """Yield the records that are in `state`, or all if it is None."""
    return (one for one in records if one is not None and state in {None, one.state})
