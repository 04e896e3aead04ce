"""A link that reports the answers it gets to the sinks of `segmented.events`, for stores that begin while one is there.

It stands between the store and its link, so that a store without events has not one instruction more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from math import inf
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.events.hub import HUB, TASKS, sku_label
from segmented.models import (
    Acquired,
    Busy,
    Closed,
    Decided,
    Granted,
    LimitReached,
    Lost,
    Released,
    Reserved,
    Settled,
    SoldOut,
)
from segmented.models.dedup import (
    AttemptOutdated,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunOvertaken,
)
from segmented.models.locks import MayLoad
from segmented.models.orders import Returned
from segmented.models.submitted import BegunOrder, Dead, Queued, Swept
from segmented.protocol.base import LeaseRelease

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
HELD_MAX: Final = 10_000
"""Leases whose beginning is remembered; of older ones, no hold is reported."""

OUTCOMES: Final = {
    Reserved: ("reserved", ""),
    Granted: ("granted", ""),
    BegunOrder: ("begun", ""),
    Queued: ("queued", ""),
    Returned: ("returned", ""),
    SoldOut: ("refused", "sold_out"),
    Busy: ("refused", "busy"),
    LimitReached: ("refused", "limit"),
    Closed: ("refused", "closed"),
    Decided: ("refused", "decided"),
    Dead: ("dead", ""),
}
"""Outcome and reason of the answers of the protocol; a settled order has its own state."""
USUAL: Final = {Reserved}
REPLAY: Final = attrgetter("replay")
QUANTITY: Final = attrgetter("quantity")
REPEATED: Final = ("repeated", "")
WITHOUT_UNITS: Final = frozenset({"refused", "queued", "begun", "failed", "dead", "repeated"})
DECISIONS: Final = {
    KeyClaimed: "published",
    RunBegun: "begun",
    OutcomeKept: "answered",
    KeyHeld: "held",
    MessageCancelled: "cancelled",
    AttemptOutdated: "dropped",
    MessageEarly: "early",
    PayloadDiffers: "differs",
    RunOvertaken: "overtaken",
}


class Tally:
    """Counts the answers of one store, for the sinks of this process, in the thread of the hub."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[float, str]] = OrderedDict()
        orders = (op.Reserve, op.Expire, op.ReturnUnits)
        many = (op.ReserveMany, op.QueueOrders, op.SettleMany)
        self._noting: dict[type[Any], Callable[[Any, Any, float], None]] = {
            **dict.fromkeys(orders, self._order),
            **dict.fromkeys((op.Confirm, op.Cancel), self._ending),
            **dict.fromkeys(many, self._orders),
            **dict.fromkeys((op.ClaimKey, op.BeginRun), self._once),
            op.Grant: self._granted,
            op.ExpireDue: self._expired,
            op.TakeOrders: self._taken,
            op.PutOff: self._put_off,
            op.SweepOutbox: self._swept,
            op.KeepMessage: self._kept,
            op.AcquireVote: _ignored,
        }

    def answered(self, operation: Operation[Any], answer: object, at: float) -> None:
        """Count an operation's answer of local time `at`."""
        note = self._noting.get(type(operation))
        if note is not None:
            note(operation, answer, at)
        elif operation.lease_kind:
            self._acquired(operation, answer, at)
        elif isinstance(operation, LeaseRelease):
            self._released(operation, answer, at)

    def failed(self, operation: Operation[Any], error: str) -> None:
        """Count an operation that has no answer but an error of this name."""
        HUB.count("segmented.store.failures", 1, (error,))
        if isinstance(operation, (op.Reserve, op.Grant, op.Confirm, op.Cancel)):
            HUB.count("segmented.order.answers", 1, (sku_label(operation.sku), "failed", error))

    def _order(self, operation: Any, answer: Any, _: float) -> None:  # noqa: ANN401  # any of its operations
        sku = sku_label(operation.sku)
        known = _known(answer)
        if known is None:
            return
        HUB.count("segmented.order.answers", 1, (sku, *known))
        if known[0] not in WITHOUT_UNITS:
            HUB.count("segmented.order.units", _units(answer), (sku, known[0]))

    def _ending(self, operation: op.Confirm | op.Cancel, answer: Any, at: float) -> None:  # noqa: ANN401  # any of its operations
        self._order(operation, answer, at)
        if operation.holder_id is not None:
            self._ended(operation.holder_id, at)

    def _orders(self, operation: Any, answers: Sequence[Any], at: float) -> None:  # noqa: ANN401  # any of its operations
        self._many(operation.sku, answers)
        if operation.__class__ is op.SettleMany and operation.holder_id is not None:
            self._ended(operation.holder_id, at)

    def _many(self, sku: str, answers: Sequence[Any]) -> None:
        # usually all are new reservations: then three loops in C do
        is_usual = set(map(type, answers)) == USUAL and not any(map(REPLAY, answers))
        found: Counter[tuple[str, str]] = Counter({OUTCOMES[Reserved]: len(answers)} if is_usual else {})
        units: Counter[str] = Counter({"reserved": sum(map(QUANTITY, answers))} if is_usual else {})
        for answer in () if is_usual else answers:
            known = _known(answer)
            if known is not None:
                found[known] += 1
                if known[0] not in WITHOUT_UNITS:
                    units[known[0]] += _units(answer)
        label = sku_label(sku)
        for outcome, number in found.items():
            HUB.count("segmented.order.answers", number, (label, *outcome))
        for state, number in units.items():
            HUB.count("segmented.order.units", number, (label, state))

    def _granted(self, operation: op.Grant, answer: Any, at: float) -> None:  # noqa: ANN401  # any of its operations
        if type(answer) is not Busy or not operation.party:  # a caller that waits tries again
            self._order(operation, answer, at)
        if type(answer) is Granted:
            self._began(operation.holder_id, operation.lease_kind, at)

    def _taken(self, operation: op.TakeOrders, answer: Any, at: float) -> None:  # noqa: ANN401  # any of its operations
        self._many(operation.sku, [one for one in answer.orders if type(one) is not Busy])
        if answer.lease() is not None:
            self._began(operation.holder_id, operation.lease_kind, at)

    def _expired(self, operation: op.ExpireDue, answer: tuple[tuple[Settled, ...], bool], _: float) -> None:
        self._many(operation.sku, answer[0])

    def _put_off(self, operation: op.PutOff, buried: int, _: float) -> None:
        HUB.count("segmented.outbox.put_off", len(operation.order_ids) - buried, (sku_label(operation.sku),))
        self._buried(buried)

    def _swept(self, operation: op.SweepOutbox, answer: object, _: float) -> None:
        if isinstance(answer, Swept):
            sku = sku_label(operation.sku)
            for finding, number in (("republished", len(answer.due)), ("buried", len(answer.buried))):
                if number:
                    HUB.count("segmented.outbox.swept", number, (sku, finding))
            self._buried(len(answer.buried))

    def _kept(self, _: op.KeepMessage, answer: object, __: float) -> None:
        if answer:
            HUB.count("segmented.dead_letters", 1, ("message",))

    def _buried(self, number: int) -> None:
        if number:
            HUB.count("segmented.dead_letters", number, ("order",))

    def _once(self, operation: Any, answer: Any, _: float) -> None:  # noqa: ANN401  # any of its operations
        decision = DECISIONS[type(answer)]
        if operation.__class__ is op.ClaimKey and decision in {"held", "answered"}:
            decision = "returned"  # it was not published
        HUB.count("segmented.once.messages", 1, (TASKS[operation.task], decision))

    def _acquired(self, operation: Any, answer: Any, at: float) -> None:  # noqa: ANN401  # any of its operations
        if isinstance(answer, (Acquired, MayLoad)):
            self._began(operation.holder_id, operation.lease_kind, at)

    def _released(self, operation: Any, answer: object, at: float) -> None:  # noqa: ANN401  # any of its operations
        if isinstance(answer, (Released, Lost)):
            self._ended(operation.holder_id, at)

    def _began(self, holder_id: str, kind: str, at: float) -> None:
        HUB.count("segmented.lock.acquisitions", 1, (kind,))
        self._held[holder_id] = at, kind
        if len(self._held) > HELD_MAX:
            self._held.popitem(last=False)

    def _ended(self, holder_id: str, at: float) -> None:
        began = self._held.pop(holder_id, None)
        if began is not None:
            HUB.count("segmented.lock.held", max(0.0, at - began[0]), (began[1],))


def _ignored(_: object, __: object, ___: float) -> None:
    """Count nothing: the votes of several servers are one lease."""


def _known(answer: Any) -> tuple[str, str] | None:  # noqa: ANN401  # any answer to an order
    """Return the outcome of an answer and the reason of a refusal; None if it says nothing of the order."""
    known = OUTCOMES.get(type(answer))
    if known is None:
        if type(answer) is Settled:
            known = answer.state, ""
        else:
            return ("failed", type(answer).__name__) if isinstance(answer, SegmentedError) else None
    return REPEATED if known[0] != "refused" and getattr(answer, "replay", False) else known


def _units(answer: Any) -> int:  # noqa: ANN401  # any answer to an order
    return answer.units if type(answer) is Returned else answer.quantity


def _named(error: BaseException) -> str:
    """Return the name of our error for the driver's, too."""
    return type(error).__name__ if isinstance(error, SegmentedError) else "StoreUnavailable"


class AsyncObservedLink:
    """A link for asyncio that reports its answers."""

    def __init__(self, link: Any) -> None:  # noqa: ANN401  # to one server, or to a cluster
        """Stand before `link`, whose other methods are its own."""
        self._link = link
        self._tally = Tally()
        self._answered = self._tally.answered

    async def perform(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation."""
        try:
            answer: AnswerT = await self._link.perform(operation, deadline=deadline)
        except Exception as error:
            HUB.append((self._tally.failed, operation, _named(error)))
            raise
        HUB.append((self._answered, operation, answer, monotonic()))
        return answer

    async def perform_all(
        self, operations: Sequence[Operation[AnswerT]], *, where: str, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip; one answer or error each."""
        answers: list[AnswerT | SegmentedError] = await self._link.perform_all(
            operations, where=where, deadline=deadline
        )
        for operation, answer in zip(operations, answers, strict=True):
            self._note(operation, answer)
        return answers

    async def free(
        self, operation: Operation[AnswerT], behind: Operation[Any], *, where: str, deadline: float = inf
    ) -> list[Any]:
        """Perform a release and then a waiter's attempt in one round trip; one answer or error each."""
        answers: list[Any] = await self._link.free(operation, behind, where=where, deadline=deadline)
        for one, answer in zip((operation, behind), answers, strict=True):
            self._note(one, answer)
        return answers

    def _note(self, operation: Operation[Any], answer: object) -> None:
        if isinstance(answer, SegmentedError):
            HUB.append((self._tally.failed, operation, type(answer).__name__))
        else:
            HUB.append((self._answered, operation, answer, monotonic()))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of the link
        """Return the link's own."""
        return getattr(self._link, name)


# --- For threads: written by `make sync` from the classes above. ---


class ObservedLink:
    """A link for threads that reports its answers."""

    def __init__(self, link: Any) -> None:  # noqa: ANN401  # to one server, or to a cluster
        """Stand before `link`, whose other methods are its own."""
        self._link = link
        self._tally = Tally()
        self._answered = self._tally.answered

    def perform(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation."""
        try:
            answer: AnswerT = self._link.perform(operation, deadline=deadline)
        except Exception as error:
            HUB.append((self._tally.failed, operation, _named(error)))
            raise
        HUB.append((self._answered, operation, answer, monotonic()))
        return answer

    def perform_all(
        self, operations: Sequence[Operation[AnswerT]], *, where: str, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip; one answer or error each."""
        answers: list[AnswerT | SegmentedError] = self._link.perform_all(operations, where=where, deadline=deadline)
        for operation, answer in zip(operations, answers, strict=True):
            self._note(operation, answer)
        return answers

    def free(
        self, operation: Operation[AnswerT], behind: Operation[Any], *, where: str, deadline: float = inf
    ) -> list[Any]:
        """Perform a release and then a waiter's attempt in one round trip; one answer or error each."""
        answers: list[Any] = self._link.free(operation, behind, where=where, deadline=deadline)
        for one, answer in zip((operation, behind), answers, strict=True):
            self._note(one, answer)
        return answers

    def _note(self, operation: Operation[Any], answer: object) -> None:
        if isinstance(answer, SegmentedError):
            HUB.append((self._tally.failed, operation, type(answer).__name__))
        else:
            HUB.append((self._answered, operation, answer, monotonic()))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of the link
        """Return the link's own."""
        return getattr(self._link, name)
