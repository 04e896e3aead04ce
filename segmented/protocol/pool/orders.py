"""Operations on the orders of a stock pool: units taken, granted, confirmed, cancelled, expired, returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Final, Literal, Self

from segmented.errors import (
    ChangeMismatch,
    EpochEnded,
    InvalidInput,
    OrderInWork,
    OrderQueued,
    OrderUnknown,
    PoolDrifted,
    PoolGated,
    SegmentedError,
)
from segmented.keys import shard_keys
from segmented.ledger_lines import parse_parts
from segmented.models import (
    Busy,
    Closed,
    Decided,
    Granted,
    LimitReached,
    Lost,
    Order,
    OrderState,
    Refusal,
    Released,
    Renewed,
    Reserved,
    Returned,
    Settled,
    SoldOut,
    Superseded,
    Taken,
)
from segmented.models.ids import plural
from segmented.models.orders import ANOTHER, decided_as, ended_as, mismatch_of, took_segment
from segmented.models.pools import UNASSIGNED, Assignment
from segmented.protocol.base import AnswerT_co, LeaseRelease, Operation, Release, is_one
from segmented.protocol.lock import NEWCOMER, asked_of, leaving_call
from segmented.protocol.pool import STATES, keys_of, kind_of
from segmented.protocol.wire import Call, Finish, Reply, Sight, always, json_text, load_script, optional_number, text
from segmented.values import light_dataclass

BATCH_MAX = 1_000
"""Maximum orders in one batch: a script must not block other clients for long."""
GRANTED: Final = frozenset({"granted", b"granted"})
SETTLED: Final = frozenset({"settled", b"settled"})
"""First words of the usual answers, as text and as bytes; `kind_of` reads the others."""


@light_dataclass(frozen=True, slots=True)
class Reserve(Operation[Taken]):
    """Take units until `hold_ms` from now, without a lock; with `partial`, fewer if fewer are left."""

    sku: str
    order: Order
    hold_ms: int
    partial: bool = False
    publish_after_ms: int | None = None
    """For a submitted order: time after which the outbox publishes it again while it is unfinished."""

    def call(self) -> Call:
        return _reserve_call(self.sku, (self.order,), self.hold_ms, self.publish_after_ms, partial=self.partial)

    def answer(self, reply: Reply) -> Taken:
        (answer,) = _reserved(self.sku, (self.order,), reply)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class ReserveMany(Operation[tuple[Taken | SegmentedError, ...]]):
    """`Reserve` for up to 1,000 orders, in this order; the second use of an id is a repeat.

    Returns for each order the answer, or the error that `Reserve` would have raised. One step, or several with a
    sequence number each: a step begins no further order once it has done enough.
    """

    sku: str
    orders: tuple[Order, ...]
    hold_ms: int
    partial: bool = False
    publish_after_ms: int | None = None

    def call(self) -> Call:
        return _reserve_call(self.sku, self.orders, self.hold_ms, self.publish_after_ms, partial=self.partial)

    def answer(self, reply: Reply) -> tuple[Taken | SegmentedError, ...]:
        return tuple(_reserved(self.sku, self.orders, reply))

    def continued(self, answers: tuple[Taken | SegmentedError, ...]) -> Finish:
        """Ask for the orders that one step was too short for, because those before them have many parts."""
        while left := self.orders[len(answers) :]:
            busy = next((answer for answer in answers if isinstance(answer, Busy)), None)
            if busy is None:
                answers += yield replace(self, orders=left)
            else:  # later orders must not get its units
                answers += tuple(replace(busy, order_id=order.order_id) for order in left)
        return answers

    acknowledges = always

    def sight(self, reply: Reply, _: object) -> Sight:
        return int(reply[1]), int(reply[2]), 0


@light_dataclass(frozen=True, slots=True)
class Grant(Operation[Granted | Refusal]):
    """Take units and the lock of a free segment in one step; `hold_ms` >= `ttl_ms`.

    `party` is as for `AcquireLock`: with it, free segments are left to the processes of the pool's line that have
    waited longest, one to each.
    """

    lease_kind: ClassVar = "segment"
    sku: str
    order: Order
    holder_id: str
    ttl_ms: int
    hold_ms: int
    keep_refusal: bool
    """Store "refused" as the order's final state, so that a repeat gets that answer."""
    partial: bool = False
    """Take the remaining units if fewer are left than requested."""
    above: int = 0
    """A resource has accepted this token: grant a higher one, also for a lease that the holder has."""
    party: str = ""
    repeatable: bool = False
    """The caller chose the holder id: the repeat of a call without an answer continues with what that has taken."""

    def call(self) -> Call:
        order = self.order
        wanted = (order.order_id, order.quantity, order.customer_id or "", "1" if self.partial else "0")
        lease = (self.holder_id, self.ttl_ms, self.hold_ms, "1" if self.keep_refusal else "0")
        asked = () if self.party == NEWCOMER else (asked_of(self.party),)
        return Call(load_script("grant"), keys_of(self.sku), (*wanted, *lease, self.above, *asked))

    def answer(self, reply: Reply) -> Granted | SoldOut | Busy | Decided | Closed | LimitReached:
        if reply[0] not in GRANTED:
            return _not_granted(self, reply)
        segment, quantity, free_in_ms = int(reply[2]), int(reply[3]), int(reply[7])
        return Granted(
            order_id=self.order.order_id,
            quantity=quantity,
            segment=segment,
            parts=parse_parts(text(reply[4]), segment=segment, quantity=quantity)
            if reply[4]
            else ((segment, quantity),),
            holder_id=self.holder_id,
            fencing_token=int(reply[5]),
            epoch=int(reply[1]),
            sequence=int(reply[6]),
            free_in_ms=None if free_in_ms < 0 else free_in_ms,
            replay=int(reply[8]) == 1,
        )

    def takes(self, answer: Any) -> bool:
        return bool(took_segment(answer))

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class RenewGrant(Operation[Renewed | Lost]):
    """Extend a grant's lease and hold from now, if the lease is still the holder's."""

    sku: str
    order_id: str
    holder_id: str
    ttl_ms: int
    hold_ms: int

    def call(self) -> Call:
        lease = (self.holder_id, self.ttl_ms, self.hold_ms)
        return Call(load_script("renew_grant"), keys_of(self.sku), (self.order_id, *lease))

    def answer(self, reply: Reply) -> Renewed | Lost:
        renewed = kind_of(self.sku, reply, self.order_id) == "renewed"
        return Renewed(self.ttl_ms) if renewed else Lost()


@light_dataclass(frozen=True, slots=True)
class LeavePoolLine(Release[bool]):
    """Take the process `party`, which waits no more, out of the pool's line; otherwise as `LeaveLine`."""

    sku: str
    party: str

    def call(self) -> Call:
        keys = shard_keys(self.sku)
        return leaving_call((keys.lock, keys.meta, keys.freed, keys.line), self.party)

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class ReleaseGrant(LeaseRelease):
    """Free the segment of a grant before its lease ends; the units stay reserved for the order."""

    sku: str
    order_id: str
    holder_id: str

    def call(self) -> Call:
        return Call(load_script("release_grant"), keys_of(self.sku), (self.order_id, self.holder_id))

    def answer(self, reply: Reply) -> Released | Lost:
        return Released() if kind_of(self.sku, reply, self.order_id) == "released" else Lost()

    def wakes(self) -> tuple[str, str] | None:
        return shard_keys(self.sku).freed, self.holder_id


class _Ending(Release[AnswerT_co]):
    """The part that the operations that end orders have in common."""

    __slots__ = ()
    sku: str
    state: Literal["confirmed", "cancelled", "expired"]
    holder_id: str | None
    decided: bool
    epoch: int | None
    unheard: bool
    quiet: bool

    def _call(self, order_ids: tuple[str, ...], *worker: str, idle: bool = False, sold_before: bool = False) -> Call:
        stored = "decided" if self.epoch is None else f"decided:{self.epoch}"
        asked = {stored: self.decided, "idle": idle, "unheard": self.unheard, "sold": sold_before, "quiet": self.quiet}
        words = " ".join(word for word, is_asked in asked.items() if is_asked)
        holder = () if self.holder_id is None else (self.holder_id,)
        return Call(load_script("settle"), keys_of(self.sku), (self.state, words, _listed(order_ids), *worker, *holder))

    def wakes(self) -> tuple[str, str] | None:
        # the segment of the holder, if one is named, is freed if it still has it
        return None if self.holder_id is None else (shard_keys(self.sku).freed, self.holder_id)

    def quietly(self) -> Self:
        return replace(self, quiet=True)  # type: ignore[type-var]  # each of them is a dataclass, and has it

    def acknowledges(self, *, is_gated: bool) -> bool:
        # nobody waits for the answer to an expired hold, or once the caller is gone; of what the database has decided,
        # its answer is what the caller relies on
        return self.state != "expired" and not (is_gated and self.decided) and not self.unheard

    def sight(self, reply: Reply, _: object) -> Sight:
        return int(reply[3]), int(reply[1]), 0


@light_dataclass(frozen=True, slots=True)
class _EndOne(_Ending[AnswerT_co]):
    sku: str
    order_id: str
    holder_id: str | None = None
    decided: bool = False
    """The order database of a gated pool has stored the order, or voided it; such a pool refuses otherwise."""
    epoch: int | None = None
    """The epoch in which the database has stored it: raises EpochEnded if the pool is in a later one, and has counted
    it; None: not compared.
    """
    unheard: bool = False
    """The caller was gone before it had the answer: the id can be reserved or granted again."""
    quiet: bool = False
    """As for `ReleaseLock`: wake no waiter."""

    def call(self) -> Call:
        return self._call((self.order_id,))

    def answer(self, reply: Reply) -> AnswerT_co:
        (answer,) = _ended(self.sku, self.state, (self.order_id,), reply)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer  # type: ignore[return-value]  # the script has no other answer to this state


@light_dataclass(frozen=True, slots=True)
class Confirm(_EndOne[Settled]):
    """Make a reservation final and free its segment. Needs no lease; with a holder id, frees only that holder's."""

    state: Literal["confirmed"] = field(default="confirmed", init=False)


@light_dataclass(frozen=True, slots=True)
class Cancel(_EndOne[Settled | Superseded]):
    """Cancel an order and free its segment; with a holder id, only if the order is still that holder's."""

    state: Literal["cancelled"] = field(default="cancelled", init=False)


@light_dataclass(frozen=True, slots=True)
class Expire(_EndOne[Settled | None]):
    """Give the units back if the hold has expired and no lease is alive; None if it is too early."""

    state: Literal["expired"] = field(default="expired", init=False)


@light_dataclass(frozen=True, slots=True)
class SettleMany(_Ending[tuple[Settled | SegmentedError | None, ...]]):
    """`Confirm`, `Cancel` or `Expire` for up to 1,000 orders, without a holder or with one for all of them.

    Returns for each order the answer, or the error that the single operation would have raised; None if it is too early
    to expire it, or if a worker has it in hand. One step, or several with a sequence number each: a step begins no
    further order once it has done enough.
    """

    sku: str
    state: Literal["confirmed", "cancelled", "expired"]
    order_ids: tuple[str, ...]
    decided: bool = False
    """The order database of a gated pool has stored, or voided, these orders."""
    holder_id: str | None = None
    idle: bool = False
    """Leave alone orders that were not submitted, and submitted ones that a worker has in hand."""
    unheard: bool = False
    epoch: int | None = None
    """As for the single operations; EpochEnded takes the answer's place."""
    sold_before: bool = False
    """Cancelled because the database sold these orders in an earlier epoch: callers learn that they are confirmed."""
    assignment: Assignment = UNASSIGNED
    """With `idle`, queue and step of the worker: raises AssignedElsewhere if the pool names others."""
    quiet: bool = False
    """As for `ReleaseLock`: wake no waiter."""

    def call(self) -> Call:
        worker = self.assignment.texts if self.idle else ()
        return self._call(self.order_ids, *worker, idle=self.idle, sold_before=self.sold_before)

    def answer(self, reply: Reply) -> tuple[Settled | SegmentedError | None, ...]:
        state: OrderState = "confirmed" if self.sold_before else self.state
        answers = _ended(self.sku, state, self.order_ids, reply)
        if self.holder_id is None:  # without a holder no other one can have superseded it
            return tuple(answers)  # type: ignore[arg-type]  # as the script answers
        return tuple(None if isinstance(answer, Superseded) else answer for answer in answers)

    def continued(self, answers: tuple[Settled | SegmentedError | None, ...]) -> Finish:
        """End the orders that one step was too short for, because those before them have many parts."""
        while left := self.order_ids[len(answers) :]:
            answers += yield replace(self, order_ids=left)
        return answers


@light_dataclass(frozen=True, slots=True)
class ExpireDue(Operation[tuple[tuple[Settled, ...], bool]]):
    """Expire up to `limit` due holds in one step; also returns whether more are due."""

    sku: str
    limit: int

    def call(self) -> Call:
        return Call(load_script("expire_due"), keys_of(self.sku), (self.limit,))

    def answer(self, reply: Reply) -> tuple[tuple[Settled, ...], bool]:
        kind_of(self.sku, reply)
        sequence, lines = text(reply[1]), text(reply[3])
        settled = []
        for line in lines.split("\n") if lines else ():
            order_id, quantity, segment, fence = (*line.split("\t"), "")[:4]
            settled.append(settled_line(order_id, ("e", quantity, segment, fence, sequence), replay=False))
        return tuple(settled), text(reply[2]) == "1"

    def sight(self, reply: Reply, _: object) -> Sight:
        return int(reply[4]), int(reply[1]), 0


@light_dataclass(frozen=True, slots=True)
class ExtendHold(Operation[Reserved | Settled | None]):
    """Lengthen an order's hold to `hold_ms` from now, or later; None if it has ended and its units are not back yet."""

    sku: str
    order_id: str
    hold_ms: int

    def call(self) -> Call:
        return Call(load_script("extend_hold"), keys_of(self.sku), (self.order_id, self.hold_ms))

    def answer(self, reply: Reply) -> Reserved | Settled | None:
        kind = kind_of(self.sku, reply, self.order_id)
        return None if kind == "ended" else _standing(self.order_id, kind, reply)


@light_dataclass(frozen=True, slots=True)
class ChangeQuantity(Operation[Reserved | Settled]):
    """Let a reserved order keep `quantity` units, and give the others back. Raises InvalidInput if it has fewer."""

    sku: str
    order_id: str
    quantity: int

    def call(self) -> Call:
        return Call(load_script("change_quantity"), keys_of(self.sku), (self.order_id, self.quantity))

    def answer(self, reply: Reply) -> Reserved | Settled:
        kind = kind_of(self.sku, reply, self.order_id)
        if kind == "in_hand":
            raise OrderInWork(self.order_id)
        if kind == "fewer":
            has = int(reply[1])
            cure = f"not raise it to {self.quantity}: reserve the other {self.quantity - has} under a second order id"
            raise InvalidInput(
                f"order {self.order_id!r} has {has} {plural(has, 'unit')}, and a change can only lower that, {cure}"
            )
        return _standing(self.order_id, kind, reply, replay=kind != "changed" or text(reply[7]) == "1")

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class ReturnUnits(Operation[Returned | Settled | None]):
    """Give back units of a confirmed order, once for each return id. None: the order is reserved, not sold.

    A gated pool refuses unless its order database has stored the return, in this `epoch`; raises EpochEnded if the pool
    is in another one. Raises ChangeMismatch, and InvalidInput for more units than the order has.
    """

    sku: str
    order_id: str
    units: int
    return_id: str
    epoch: int | None = None
    customer_id: str | None = None
    """As the order database has it: for an order that the pool has no record of."""

    def call(self) -> Call:
        stored = ("" if self.epoch is None else self.epoch, self.customer_id or "")
        arguments = (self.order_id, self.units, self.return_id, *stored)
        return Call(load_script("return_units"), keys_of(self.sku), arguments)

    def answer(self, reply: Reply) -> Returned | Settled | None:
        kind = kind_of(self.sku, reply, self.order_id)
        match kind:
            case "mismatch":
                raise ChangeMismatch(self.sku, self.return_id)
            case "in_cart":
                raise OrderInWork(self.order_id)
            case "fewer":
                raise too_many_returned(self.order_id, self.units, int(reply[1]))
            case "reserved":
                return None
            case "returned":
                kept, sequence, replay = int(reply[1]), int(reply[2]), text(reply[3]) == "1"
                return Returned(self.order_id, self.return_id, self.units, kept, sequence, replay)
        ended = _standing(self.order_id, kind, reply)
        assert isinstance(ended, Settled)  # the script has no other answer
        return ended

    def sight(self, reply: Reply, answer: object) -> Sight:
        return (int(reply[4]), int(reply[2]), 0) if isinstance(answer, Returned) else (0, 0, 0)

    def acknowledges(self, *, is_gated: bool) -> bool:
        return not is_gated


def lines_of(value: Reply) -> list[str]:
    """Split an item of an answer into its lines."""
    return (value.decode() if isinstance(value, bytes) else str(value)).split("\n")


def settled_line(order_id: str, fields: Sequence[str], *, replay: bool = True) -> Settled:
    """Read a decision: an earlier one or, if it is not a replay or marked as this call's own, a new one."""
    state, quantity, segment, fence, sequence, *own = fields
    return Settled(
        order_id=order_id,
        state=ended_as(STATES[state], int(quantity), int(segment) if segment else None),
        quantity=int(quantity),
        segment=int(segment) if segment else -1,
        fencing_token=int(fence) if fence else None,
        sequence=int(sequence),
        replay=replay and not own,
    )


def refused_line(sku: str, order: Order, line: str) -> Refusal | SegmentedError:
    """Read a line that grants nothing; any other one refuses other content under the order's id."""
    kind, *fields = line.split("\t")
    order_id = order.order_id
    match kind:
        case "sold_out":
            available, reserved, sequence, epoch = map(int, fields[:4])
            free_in_ms = optional_number(fields[4])
            return SoldOut(order_id, order.quantity, available, reserved, sequence, epoch=epoch, free_in_ms=free_in_ms)
        case "settled":
            return decided_as(settled_line(order_id, fields))
        case "busy":
            return Busy(order_id, int(fields[0]), int(fields[1]))
        case "closed":
            return Closed(order_id)
        case "limit":
            limit, taken = map(int, fields)
            return LimitReached(order_id, order.quantity, order.customer_id or "", limit, taken)
        case "nobody":
            return InvalidInput(f"order {order_id!r} names no customer, but pool {sku!r} limits what one may have")
        case "drifted":
            return PoolDrifted(sku)
        case _:
            quantity, *customer = fields
            stored = order.customer_id if customer == ["="] else ANOTHER if customer else None
            return mismatch_of(order, int(quantity), stored)


def _listed(texts: Sequence[str]) -> str:
    return f"[{json_text(texts[0])}]" if len(texts) == 1 else json_text(texts)  # the encoder writes one text in a third


def _reserve_call(
    sku: str, orders: Sequence[Order], hold_ms: int, publish_after_ms: int | None = None, *, partial: bool
) -> Call:
    quantities, customers = [order.quantity for order in orders], [order.customer_id for order in orders]
    is_equal = quantities.count(quantities[0]) == len(quantities)
    lists = [_listed([order.order_id for order in orders]), quantities[0] if is_equal else json_text(quantities)]
    if any(customers):
        lists.append(_listed([customer or "" for customer in customers]))
    after = "" if publish_after_ms is None else publish_after_ms
    return Call(load_script("reserve"), keys_of(sku), (hold_ms, "1" if partial else "0", after, *lists))


def _reserved(sku: str, orders: Sequence[Order], reply: Reply) -> list[Taken | SegmentedError]:
    epoch, sequence, hold_until_ms = int(reply[1]), int(reply[2]), int(reply[4])
    answers: list[Taken | SegmentedError] = []
    alike: dict[str, tuple[Any, ...]] = {}  # most lines of a batch are the same few: what follows the order id
    for order, line in zip(orders, lines_of(reply[3]), strict=False):  # maybe of the first orders only
        known = alike.get(line)
        if known is None and line[0].isdigit():
            alike[line] = known = _granted(line, epoch, sequence, hold_until_ms)
        if known is not None:
            answers.append(Reserved(order.order_id, *known))
        else:
            answers.append(refused_line(sku, order, line))
    return answers


def _granted(line: str, epoch: int, sequence: int, hold_until_ms: int) -> tuple[Any, ...]:
    """Read a line that grants, as the fields of `Reserved` after the order id.

    The sequence number and the end of the hold are the answer's, unless it names others.
    """
    segment, quantity, *rest = line.split("\t")
    number, units = int(segment), int(quantity)
    parts = parse_parts(rest[0], segment=number, quantity=units) if rest and rest[0] else ((number, units),)
    is_known = len(rest) > 1
    if is_known and rest[1] != "+":
        sequence, hold_until_ms = int(rest[1]), int(rest[2])
    is_repeat = is_known and rest[-1] != "own"
    return units, number, parts, epoch, sequence, is_repeat, hold_until_ms


def _not_granted(operation: Grant, reply: Reply) -> SoldOut | Busy | Decided | Closed | LimitReached:
    order = operation.order
    kind = kind_of(operation.sku, reply, order.order_id)
    if kind == "busy":
        return Busy(order.order_id, int(reply[1]), optional_number(reply[2]), ahead=int(reply[3]))
    if kind == "in_hand":
        return Busy(order.order_id, int(reply[1]), optional_number(reply[2]), is_in_hand=True)
    if kind == "sold_out":
        available, reserved, sequence, epoch = map(int, reply[1:5])
        return SoldOut(order.order_id, order.quantity, available, reserved, sequence, replay=True, epoch=epoch)
    answer = refused_line(operation.sku, order, kind)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _ended(
    sku: str, state: OrderState, order_ids: Sequence[str], reply: Reply
) -> list[Settled | Superseded | SegmentedError | None]:
    if reply[0] not in SETTLED:
        kind_of(sku, reply)
    sequence = int(reply[1])
    answers: list[Settled | Superseded | SegmentedError | None] = []
    done: dict[str, tuple[Any, ...]] = {}  # most lines of a batch are the same few: what follows the order id
    for order_id, line in zip(order_ids, lines_of(reply[2]), strict=False):  # maybe of the first orders only
        known = done.get(line)
        if known is None:
            kind, *rest = line.split("\t")
            if kind != "done":
                answers.append(_not_ended(sku, state, order_id, kind, rest, int(reply[3])))
                continue
            quantity, segment, fence = (*rest, "")[:3]
            token = int(fence) if fence else None
            done[line] = known = (state, int(quantity), int(segment), token, sequence, False)
        answers.append(Settled(order_id, *known))
    return answers


def _not_ended(
    sku: str, state: OrderState, order_id: str, kind: str, fields: Sequence[str], epoch: int
) -> Settled | Superseded | SegmentedError | None:
    match kind:
        case "settled":
            return settled_line(order_id, fields)
        case "superseded":
            return Superseded(order_id, int(fields[0]))
        case "unknown":
            return OrderUnknown(order_id)
        case "queued":
            return OrderQueued(order_id)
        case "gated":
            return PoolGated(sku, order_id, "store" if state == "confirmed" else "void")
        case "late":
            return EpochEnded(sku, epoch)
        case "drifted":
            return PoolDrifted(sku)
        case _:
            return None


def too_many_returned(order_id: str, units: int, sold: int) -> InvalidInput:
    """Return the error for a return of more units than an order has."""
    message = f"{units} {plural(units, 'unit')} of order {order_id!r} cannot be returned: {sold} of it are sold"
    return InvalidInput(message)


def _standing(order_id: str, kind: str, reply: Reply, *, replay: bool = True) -> Reserved | Settled:
    """Read what an order has, or how it has ended."""
    if kind == "queued":
        raise OrderQueued(order_id)
    if kind == "settled":
        _, *fields = text(reply[1]).split("\t")
        return settled_line(order_id, fields)
    quantity, segment, parts = int(reply[1]), int(reply[2]), text(reply[3])
    found = parse_parts(parts, segment=segment, quantity=quantity)
    return Reserved(order_id, quantity, segment, found, int(reply[6]), int(reply[4]), replay, int(reply[5]))
