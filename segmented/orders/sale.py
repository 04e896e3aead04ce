"""Sell with a gate: take an order under a segment's lock, store it, tell the pool; and end what is not sold.

With a gate only the SQL order row decides. So every path here ends by passing the database's answer to the pool, and if
a process dies between any two steps, the next delivery finishes the order with the same units.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from segmented import protocol as op
from segmented.errors import (
    DatabaseUnavailable,
    EpochEnded,
    GrantSuperseded,
    InvalidInput,
    OrderMismatch,
    OrderUnknown,
    PoolDiverged,
    PoolFrozen,
    PoolNotGated,
    SegmentedError,
    StoreError,
)
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.models import Closed, Decided, LimitReached, Order, Reserved, Settled, SoldOut, Superseded
from segmented.models.orders import decided_as, fate_of
from segmented.orders import answers
from segmented.orders.deciding import Claim, in_part
from segmented.orders.forgetting import (
    decided_before,
    decision_of,
    end_decided,
    ended_before,
    is_known_to_remember,
    may_have_forgotten,
    may_know_more,
)
from segmented.orders.tables import CONFIRMED
from segmented.orders.verifying import compare_once, freeze_if_behind, is_compared, when_verified
from segmented.plans import run_sync
from segmented.stock import Grant
from segmented.stock.grant import GrantState
from segmented.stock.plans import due_plan
from segmented.stock.settings import checked_expire_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from segmented.clock import Duration
    from segmented.models import Granted, OrderRecord, Refusal
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

    Decisions = Mapping[int, Settled | OrderMismatch]
    """The database's decisions, by the place of the order; a mismatch takes its place."""

AnswerT = TypeVar("AnswerT")
GrantT = TypeVar("GrantT", bound=GrantState)

SUPERSEDED_MAX: Final = 10
"""Maximum number of consecutive grants overtaken by a later one."""
SETTLED_MAX: Final = 100
"""Maximum number of expired holds that a refused caller settles."""
SETTLE_SECONDS: Final = 1.0
_AGAIN_AT: Final[WeakKeyDictionary[OrderDatabase, dict[str, float]]] = WeakKeyDictionary()
"""Local time before which the callers of each order database do not look for a pool's expired holds again."""
REBUILDS_MAX: Final = 10
"""Maximum number of rebuilds that overtake one confirm."""


def take_order(
    pool: Pool,
    gate: OrderDatabase,
    order: Order,
    *,
    timeout: Duration | None = DEFAULT_TIMEOUT,
    keep_refusal: bool = False,
    partial: bool = False,
    body: Callable[[Grant], None] | None = None,
) -> Settled | Refusal:
    """Grant a segment, run `body` and store the order under its lock, confirm. Safe to repeat, also concurrently.

    Returns Settled, which is true in a condition, if the order is sold, by this call or before; otherwise a refusal.
    With `partial` the order takes fewer units if fewer are left; the grant that `body` gets has the quantity. If `body`
    raises, the order is voided in the database, its units are returned, and the error propagates. If the database
    cannot be reached, the units stay reserved: the next call for this order gets them. Raises OrderMismatch for an id
    that either side knows with other content; units that this call took are returned. The database is asked before a
    `body` runs: it does not run for an order that the database has sold or voided, whatever the pool says.

    If a later grant of the segment reached the database first, the segment is freed at once and granted again with a
    higher token. `body` has run by then, so this raises GrantSuperseded with the units still reserved, and the caller
    decides; without a body the call goes on by itself, up to 10 times. Raises PoolFrozen if the
    database shows that the pool lost changes. This call asks it about that after a restart or failover of the pool's
    server, and if it is the first one of its store and pool.
    """
    pool = gated(pool, gate)
    epoch = pool.epoch()
    before = decided_before(pool, gate, order, epoch, asked=order.quantity if partial else None)
    if before is not None:
        return fate_of(before)
    for _ in range(SUPERSEDED_MAX):
        grant = asked(
            pool, gate, lambda: pool.grant(order, timeout=timeout, keep_refusal=keep_refusal, partial=partial)
        )
        earlier = _sold_in_another_epoch(pool, gate, order, grant, epoch)
        if earlier is not None:
            return fate_of(earlier)
        if not isinstance(grant, Grant):
            return fate_of(grant) if isinstance(grant, Decided) else grant
        granted = grant.handed_on()  # the database decides from here on, also if this call ends early
        if body is not None and not _is_stored(pool, gate, grant):
            try:
                body(grant)
            except Exception as error:
                _give_back(pool, gate, order, error)
                raise
        try:
            return fate_of(finish_granted(pool, gate, order, granted))
        except GrantSuperseded:
            if body is not None:
                raise
    raise PoolDiverged(pool.sku, order.order_id, f"{SUPERSEDED_MAX} grants in a row were superseded")


def undecided(pool: Pool, gate: OrderDatabase, order: Order, answer: GrantT | Refusal, epoch: int) -> GrantT | Refusal:
    """Return the answer to a grant, or how the order ended if the database has decided it."""
    earlier = _sold_in_another_epoch(pool, gate, order, answer, epoch)
    if earlier is not None:
        return decided_as(earlier)
    if isinstance(answer, GrantState) and _is_stored(pool, gate, answer):
        return decided_as(finish_granted(pool, gate, order, answer.handed_on()))  # the pool was not told, or lost it
    return answer


def finish_granted(pool: Pool, gate: OrderDatabase, order: Order, granted: Granted) -> Settled:
    """Store a granted order, and confirm it. Raises GrantSuperseded with the segment freed and the units reserved."""
    decided = stored(pool, gate, order, granted, fence=granted.fencing_token)
    if isinstance(decided, answers.Superseded):
        pool.note_token(decided.fence)
        _release(pool, gate, granted)
        raise GrantSuperseded(order.order_id, decided.fence)
    return tell_pool(pool, gate, order, decided, epoch=granted.epoch, holder_id=granted.holder_id)


def _sold_in_another_epoch(
    pool: Pool, gate: OrderDatabase, order: Order, answer: GrantState | Refusal, known: int
) -> Settled | None:
    """Ask the database again if the pool that answered was rebuilt since this process asked it for its epoch."""
    if isinstance(answer, Decided):
        if answer.state == "confirmed":
            return None
        return decided_before(pool, gate, order, pool.state().epoch, asked=order.quantity)
    epoch = known
    if isinstance(answer, GrantState | SoldOut):
        epoch = answer.epoch
    elif isinstance(answer, Closed | LimitReached):
        epoch = pool.state().epoch
    return None if epoch == known else ended_before(pool, gate, order, pool.epoch(at_least=epoch))


def _is_stored(pool: Pool, gate: OrderDatabase, grant: GrantState) -> bool:
    """Return whether the database has decided a granted order: its worker died, or the pool lost or forgot it."""
    return gate.is_decided(pool.sku, grant.order_id)


def stored(
    pool: Pool, gate: OrderDatabase, order: Order, taken: Granted | Reserved, *, fence: int | None
) -> answers.ConfirmAnswer:
    """Store the order in the database; if it never can be, its units go back, and OrderMismatch is raised.

    An order that gave units back since they were taken is stored with those that it has left.
    """
    quantity = taken.quantity
    while True:
        part, asked = in_part(order, quantity)
        claim = Claim(part, pool.sku, taken.segment, taken.epoch, fence, asked, taken.sequence)
        try:
            answer = gate.confirm_claim(claim)
            if not isinstance(answer, answers.SoldOut) or not lower_changed(pool, gate, taken.epoch):
                return answer
        except OrderMismatch as error:
            record = record_of(pool, gate, order.order_id)
            left = 0 if record is None or record.asked != order.quantity else record.quantity
            if not 0 < left < quantity:  # it can never be stored with the pool's content
                _let_go(pool, gate, order, error)
                raise
            quantity = left


def lower_changed(pool: Pool, gate: OrderDatabase, epoch: int) -> bool:
    """Lower the rows of orders that gave units back in the pool, and that the database sold with more in this epoch.

    Returns whether there were any. The process that changed such an order has died, or will lower its row in a moment.
    Until then the database counts units as sold that are free in the pool.
    """
    found = _sold_with_more(pool, gate, epoch)
    for record in found:
        gate.lower(pool.sku, record.order_id, record.quantity, epoch)
    return len(found) > 0


def _sold_with_more(pool: Pool, gate: OrderDatabase, epoch: int) -> list[OrderRecord]:
    changed = [record for record in pool.orders(state="reserved") if record.quantity < record.asked]
    rows = gate.orders(pool.sku, [record.order_id for record in changed])
    sold = {each: row.quantity for each, row in rows.items() if (row.state, row.epoch) == (CONFIRMED, epoch)}
    return [record for record in changed if record.quantity < sold.get(record.order_id, 0)]


def finish_reserved(pool: Pool, gate: OrderDatabase, order: Order, reserved: Reserved) -> Settled:
    """Store a reserved order in the database and confirm it: the path without a lock. Safe to repeat.

    Raises OrderMismatch if the database knows the id with other content; the reserved units are returned then.
    """
    pool = gated(pool, gate)
    decided = stored(pool, gate, order, reserved, fence=None)
    return tell_pool(pool, gate, order, decided, epoch=reserved.epoch)


def record_of(pool: Pool, gate: OrderDatabase, order_id: str) -> OrderRecord | None:
    """Read the pool's record of an order."""
    (record,) = when_verified(pool, gate, lambda: pool.store.execute(op.ReadOrders(pool.sku, (order_id,))))
    return record


def cancel_order(pool: Pool, gate: OrderDatabase, order: Order) -> Settled:
    """Void the order in the database, then return its units; if it was confirmed first, it stays confirmed.

    Units that a pool holds for an order sold by a pool of an earlier epoch are returned, too.
    """
    pool = pool.plain
    record = record_of(pool, gate, order.order_id)
    if record is not None and record.asked != order.quantity:
        raise OrderMismatch(order.order_id, f"quantity {record.asked} was asked for, {order.quantity} was given")
    taken = order.quantity if record is None or not record.quantity else record.quantity  # 0: it never had units
    voided = gate.void(order_id=order.order_id, sku=pool.sku, quantity=taken, asked=order.quantity)
    if isinstance(voided, answers.AlreadyConfirmed):
        return _told_sold(pool, gate, order)
    try:
        return _settled(pool, order, _cancel(pool, gate, order))
    except OrderUnknown:
        if not voided.replay or not may_have_forgotten(pool):
            raise
        return Settled(order.order_id, "cancelled", taken, 0, None, 0, replay=True)


def expire_voided(pool: Pool, gate: OrderDatabase, *, limit: int = 1_000) -> tuple[Settled, ...]:
    """Give back the units of expired holds of a gated pool, up to `limit` orders, each voided in the database first.

    An order that the database has confirmed is confirmed in the pool instead; if that was in an earlier epoch, other
    units are sold, so these are returned. One that the database knows with other content can never be sold with the
    pool's content, so its units are returned, too. Returns the orders whose hold this call ended, each with its state.
    """
    pool, limit = pool.plain, checked_expire_limit(pool.sku, limit)
    ended: list[Settled] = []

    def due() -> list[OrderRecord]:
        return run_sync(due_plan(pool.sku, limit - len(ended)), pool.store)

    is_more_due = True
    while is_more_due and len(ended) < limit:
        settled = _expired(pool, gate, when_verified(pool, gate, due))
        ended += [answer for answer in settled if answer is not None]
        is_more_due = None not in settled and len(settled) > 0  # live leases protect some
    return tuple(ended)


def asked(pool: Pool, gate: OrderDatabase, ask: Callable[[], AnswerT]) -> AnswerT:
    """Ask the verified pool for a grant, and once more if expired holds were settled for it."""
    answer = when_verified(pool, gate, ask)
    if is_due(answer) and settle_due(pool, gate):
        answer = when_verified(pool, gate, ask)
    return answer


def is_due(answer: object) -> bool:
    """Return whether an order was refused while holds have ended that only the database can decide."""
    return isinstance(answer, SoldOut) and answer.free_in_ms == 0 and not answer.by_mark


def settle_due(pool: Pool, gate: OrderDatabase) -> bool:
    """Settle expired holds for a caller that needs their units, a bounded number; return whether some have ended.

    No worker may be running. After a call that has ended none, such as while leases protect them or the database is
    away, the next one waits for SETTLE_SECONDS.
    """
    pool, now = pool.plain, pool.store.clock.now()
    again_at = _AGAIN_AT.setdefault(gate, {})
    if now < again_at.get(pool.sku, now):
        return False
    ended: tuple[Settled, ...] = ()
    with suppress(StoreError):
        ended = expire_voided(pool, gate, limit=SETTLED_MAX)
    if not ended:
        again_at[pool.sku] = now + SETTLE_SECONDS
    pool.note_return()
    return len(ended) > 0


def _expired(pool: Pool, gate: OrderDatabase, records: list[OrderRecord]) -> list[Settled | None]:
    """End orders whose hold has ended: together, unless the database knows one of them."""
    content = [Order(record.order_id, record.quantity) for record in records]
    if len(records) < 2 or not gate.void_many(pool.sku, content):  # noqa: PLR2004  # one needs no batch
        return [expire(pool, gate, record) for record in records]
    ids = tuple(record.order_id for record in records)
    found = pool.store.execute(op.SettleMany(pool.sku, "expired", ids, decided=True))
    return [
        expire(pool, gate, record) if isinstance(answer, SegmentedError) else answer
        for record, answer in zip(records, found, strict=True)
    ]


def expire(pool: Pool, gate: OrderDatabase, record: OrderRecord) -> Settled | None:
    """Void an order whose hold has ended, and give its units back; None if nothing is ended by this call."""
    if _is_confirmed(pool, gate, record):
        return _told_sold(pool, gate, Order(record.order_id, record.asked))
    answer = pool.store.execute(op.Expire(pool.sku, record.order_id, decided=True))
    return None if answer is None or answer.replay else answer


def _told_sold(pool: Pool, gate: OrderDatabase, order: Order) -> Settled:
    """Tell the pool that the database sold the order some time ago."""
    return tell_pool(pool, gate, order, answers.Confirmed(replay=True), epoch=pool.state().epoch)


def _is_confirmed(pool: Pool, gate: OrderDatabase, record: OrderRecord) -> bool:
    """Void an order with the pool's content, and return whether it was confirmed first."""
    asked = record.asked if record.asked != record.quantity else None
    try:
        voided = gate.void(order_id=record.order_id, sku=pool.sku, quantity=record.quantity, asked=asked)
    except OrderMismatch:
        again = record_of(pool, gate, record.order_id)
        if again is not None and again.quantity < record.quantity:  # it gave units back since its record was read
            return _is_confirmed(pool, gate, again)
        return False  # the database has another order of this id
    return isinstance(voided, answers.AlreadyConfirmed)


def tell_pool(
    pool: Pool,
    gate: OrderDatabase,
    order: Order,
    decided: answers.ConfirmAnswer,
    *,
    epoch: int,
    holder_id: str | None = None,
) -> Settled:
    """Apply the database's decision to the pool: the second half of `take_order`, for orders that you store yourself.

    `epoch` is that of the grant or reservation that was stored, `holder_id` that of a grant, whose segment is freed.
    Safe to repeat. If a later epoch of the pool has the order's units a second time, they go back. Raises PoolFrozen if
    the pool lost changes, else PoolDiverged.
    """
    match decided:
        case answers.Confirmed(replay):
            answer = _confirmed(pool, gate, order, epoch, holder_id, is_asked=replay)
            settled = _settled(pool, order, answer, expected="confirmed")
            if settled.quantity < order.quantity:  # it may have been changed after its record was read
                gate.lower(pool.sku, order.order_id, settled.quantity, epoch)
            freeze_if_behind(pool, epoch, decided.sequence, (settled,))
            return settled
        case answers.Voided():
            return _settled(pool, order, _cancel(pool, gate, order))
        case answers.SoldOut(total, sold):  # the pool has units that were sold: they must never be granted again
            if _sold_with_more(pool, gate, epoch):
                message = f"order {order.order_id!r} waits for units that another order has given back: call again"
                raise DatabaseUnavailable(message)
            detail = f"the pool granted units, but {sold} of {total} are sold"
            _freeze(pool, epoch)
        case answers.EpochChanged(later):
            detail = f"the database is in epoch {later}, and its units were taken in epoch {epoch}: take it again"
            if later > epoch:
                _freeze(pool, epoch)
        case answers.Missing():
            detail = "the database has no row for its segment"
        case _:
            detail = f"unexpected answer {decided}"
    raise PoolDiverged(pool.sku, order.order_id, detail)


def _confirmed(
    pool: Pool, gate: OrderDatabase, order: Order, epoch: int, holder_id: str | None, *, is_asked: bool
) -> Settled:
    """Confirm a stored order, unless an earlier epoch sold it: then units that the pool took for it again go back.

    With `is_asked` the database did not store it just now, so that may have been in an earlier epoch than the caller's.
    """
    known = pool.epoch(at_least=epoch) if is_asked else None
    for _ in range(REBUILDS_MAX):
        before = None if known is None else ended_before(pool, gate, order, known)
        if before is not None:
            return before
        operation = op.Confirm(pool.sku, order.order_id, holder_id, decided=True, epoch=known or epoch)
        try:
            return when_verified(pool, gate, partial(pool.store.execute, operation))
        except EpochEnded as ended:
            known = pool.epoch(at_least=ended.epoch)
    raise PoolDiverged(pool.sku, order.order_id, f"it was rebuilt {REBUILDS_MAX} times in a row")


def _freeze(pool: Pool, epoch: int) -> None:
    """Freeze the pool and raise PoolFrozen, unless it is in another epoch by now."""
    with suppress(InvalidInput):
        frozen = pool.store.execute(op.FreezePool(pool.sku, epoch))
        raise PoolFrozen(pool.sku, found=frozen.found, seen=frozen.seen, is_gated=True)


def _settled(pool: Pool, order: Order, answer: object, *, expected: str | None = None) -> Settled:
    if isinstance(answer, Settled) and (expected is None or answer.state == expected):
        return answer
    raise PoolDiverged(pool.sku, order.order_id, f"the database has decided, the pool says {answer}")


def gated(pool: Pool, gate: OrderDatabase) -> Pool:
    """Return the pool on which the steps work: without the gate that it may have itself."""
    pool = pool.plain
    if not pool.is_gated() and not pool.is_gated(again=True):
        raise PoolNotGated(pool.sku)
    compare_once(pool, gate)
    return pool


def _cancel(pool: Pool, gate: OrderDatabase, order: Order) -> Settled | Superseded:
    operation = op.Cancel(pool.sku, order.order_id, decided=True)
    try:
        return when_verified(pool, gate, lambda: pool.store.execute(operation))
    finally:
        pool.note_return()


def _release(pool: Pool, gate: OrderDatabase, granted: Granted) -> None:
    operation = op.ReleaseGrant(pool.sku, granted.order_id, granted.holder_id)
    when_verified(pool, gate, lambda: pool.store.execute(operation))


def _let_go(pool: Pool, gate: OrderDatabase, order: Order, error: OrderMismatch) -> None:
    try:
        _cancel(pool, gate, order)
    except SegmentedError as failure:  # the units stay reserved until the hold expires
        error.add_note(f"and its units could not be given back: {failure}")


def _give_back(pool: Pool, gate: OrderDatabase, order: Order, error: Exception) -> None:
    try:
        cancel_order(pool, gate, order)
    except SegmentedError as failure:  # the units stay reserved; the body's error matters more
        error.add_note(f"and the order could not be voided: {failure}")


# --- reserving and submitting: the database answers for orders that it has decided and the pool forgot ---
#
# A pool of a later epoch, or one that drops records, does not know all that it sold. Without this question it would
# take units again for a sold order, or refuse it as sold out.


def take_orders(
    pool: Pool,
    gate: OrderDatabase,
    orders: Sequence[Order],
    ask: Callable[[tuple[Order, ...]], list[AnswerT]],
    *,
    partial: bool,
) -> list[AnswerT | Decided | OrderMismatch]:
    """Ask the pool for orders, except for those that only the database knows. Returns an answer for each."""
    epoch, decided = decided_first(pool, gate, orders, partial=partial)
    left = left_over(orders, decided)
    said = when_verified(pool.plain, gate, lambda: ask(left)) if left else []
    due = due_among(left, said)
    if due and settle_due(pool, gate):
        said = asked_again(said, when_verified(pool.plain, gate, lambda: ask(due)))
    return checked_again(pool, gate, orders, merged(orders, decided, said), epoch, partial=partial)


def due_among(orders: Sequence[Order], said: Sequence[object]) -> tuple[Order, ...]:
    """Return the orders that were refused while holds have ended that only the database can decide."""
    return tuple(order for order, answer in zip(orders, said, strict=True) if is_due(answer))


def asked_again(said: Sequence[AnswerT], later: Sequence[AnswerT]) -> list[AnswerT]:
    """Return the answers, with later ones for the orders that `due_among` has returned."""
    others = iter(later)
    return [next(others) if is_due(answer) else answer for answer in said]


def decided_first(pool: Pool, gate: OrderDatabase, orders: Sequence[Order], *, partial: bool) -> tuple[int, Decisions]:
    """Return the pool's epoch, and the database's decisions on orders that the pool does not know."""
    pool = gated(pool, gate)
    epoch = pool.epoch()
    return epoch, _decided(pool, gate, orders, epoch, partial=partial)


def asks_first(pool: Pool, gate: OrderDatabase) -> bool:
    """Return whether `decided_first` may ask a server."""
    found = pool.last_state
    is_first = found is not None and found.gated and found.epoch == 1
    return not (is_first and is_compared(pool, gate) and is_known_to_remember(pool))


def left_over(orders: Sequence[Order], decided: Decisions) -> tuple[Order, ...]:
    """Return the orders that the pool is asked for."""
    return tuple(order for place, order in enumerate(orders) if place not in decided)


def merged(
    orders: Sequence[Order], decided: Decisions, said: Sequence[AnswerT]
) -> list[AnswerT | Decided | OrderMismatch]:
    """Return an answer for each order: the database's, or the pool's."""
    others = iter(said)
    return [_told(decided[place]) if place in decided else next(others) for place in range(len(orders))]


def is_of_another_epoch(answers: Sequence[object], epoch: int) -> bool:
    """Return whether the pool was rebuilt since it was asked for its epoch."""
    return _latest(answers, epoch) != epoch


def checked_again(
    pool: Pool,
    gate: OrderDatabase,
    orders: Sequence[Order],
    answers: list[AnswerT | Decided | OrderMismatch],
    epoch: int,
    *,
    partial: bool,
) -> list[AnswerT | Decided | OrderMismatch]:
    """Return the answers; if the pool is in a later epoch than it was, its units for sold orders go back."""
    if not is_of_another_epoch(answers, epoch):
        return answers
    pool = pool.plain
    later = pool.epoch(at_least=_latest(answers, epoch))
    decided = _decided(pool, gate, orders, later, partial=partial)
    settled = {orders[place].order_id: one for place, one in decided.items() if isinstance(one, Settled)}
    end_decided(pool, gate, settled)
    return [_told(decided[place]) if place in decided else answer for place, answer in enumerate(answers)]


def _told(decision: Settled | OrderMismatch) -> Decided | OrderMismatch:
    return decided_as(decision) if isinstance(decision, Settled) else decision


def _latest(answers: Sequence[object], epoch: int) -> int:
    return max((answer.epoch for answer in answers if isinstance(answer, Reserved | SoldOut)), default=epoch)


def _decided(pool: Pool, gate: OrderDatabase, orders: Sequence[Order], epoch: int, *, partial: bool) -> Decisions:
    found: dict[int, Settled | OrderMismatch] = {}
    if not may_know_more(pool, epoch):
        return found
    rows = gate.orders(pool.sku, [order.order_id for order in orders])
    for place, order in enumerate(orders):
        asked, row = order.quantity if partial else None, rows.get(order.order_id)
        try:
            before = decision_of(pool, gate, order, row, epoch, asked=asked, voided=True)
        except OrderMismatch as error:
            found[place] = error
        else:
            if before is not None:
                found[place] = before
    return found
