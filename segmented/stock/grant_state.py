"""Common parts of grants: the state of the sync and the async grant, and the asyncio call that is still open."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, TypeVar

from segmented import events
from segmented.errors import InvalidInput, LeaseLost, NotGranted, SegmentedError, StoreBusy, StoreUnavailable
from segmented.locks.claim import LeaseClaim
from segmented.locks.keeper import WarnsWhenDropped
from segmented.locks.lease_state import LeaseState, trusted_until
from segmented.models import Acquired, Granted, Lost, Refusal, Renewed
from segmented.models.ids import plural
from segmented.process import THIS
from segmented.protocol import Cancel, Confirm, Grant, Operation, ReleaseGrant

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

    from segmented.clock import Clock

KeepOn = type[BaseException] | tuple[type[BaseException], ...]
"""Errors of a body after which it is unknown whether the order was paid, so that its units stay reserved."""

GrantT = TypeVar("GrantT", bound=AbstractAsyncContextManager[Any])


@dataclass(frozen=True, slots=True)
class EndClaim(LeaseClaim):
    """The end of a grant that the server still owes an answer to, for a keeper that repeats it until the hold ends."""

    kind: ClassVar[str] = "segment"
    ending: Operation[Any]

    def renewing(self, ttl_ms: int) -> NoReturn:
        """Raise: a grant is renewed together with the hold of its units."""
        raise NotImplementedError

    def releasing(self) -> Operation[Any]:
        """Return the operation that ends the grant."""
        return self.ending


class GrantState(WarnsWhenDropped):
    """A reservation together with its segment's lease. Losing the lease returns no units.

    A grant that is dropped before it is confirmed or cancelled gives a ResourceWarning: its segment stays locked until
    the lease ends, and its units stay reserved until the hold ends. It gives none once the program has read
    `holder_id`, with which the order can be confirmed elsewhere.
    """

    _is_settled = True
    """Whether it was confirmed, cancelled or kept; until it is complete, there is nothing to end."""

    def __init__(
        self,
        pool: Any,  # noqa: ANN401  # sync or async, as the class says
        granted: Granted,
        asked_at: float,
        ttl_ms: int,
        hold_ms: int,
        keep_on: KeepOn = (),
    ) -> None:
        """Create a grant of `pool`, requested at local time `asked_at`: its lease lives `ttl_ms`, its hold `hold_ms`.

        The lease is trusted a little shorter than that. If the body of the `with` statement raises an error in
        `keep_on`, its outcome is unknown: the units stay.
        """
        self.pool = pool
        """The pool, or the shard, that owns the segment and the units."""
        self._decided_by: Any = None
        """The gate whose order database decides the order, with the order, if there is one."""
        self.keep_on = keep_on
        self.answer = granted
        self.order_id = granted.order_id
        self.quantity = granted.quantity
        self.segment = granted.segment
        self.fencing_token = granted.fencing_token
        self.epoch = granted.epoch
        self.replay = granted.replay
        self.trusted_until = trusted_until(asked_at, ttl_ms)
        self._hold_ms = hold_ms
        self._process_id = THIS.process_id
        self._clock: Clock = pool.store.clock
        self._is_handed_on = False
        self._owed: LeaseState | None = None
        """The end that a keeper repeats."""
        self._is_settled = False

    def __bool__(self) -> Literal[True]:
        """Return True: the units are taken."""
        return True

    @property
    def holder_id(self) -> str:
        """Return the holder's id, with which another process can confirm the order and free its segment."""
        return self.handed_on().holder_id

    def handed_on(self) -> Granted:
        """Return the answer. Its end is not this handle's duty any more: it may be dropped without a warning."""
        self._is_handed_on = True
        return self.answer

    @property
    def is_trusted(self) -> bool:
        """Return whether the holder may still act on the segment."""
        return not self._is_settled and self._clock.now() < self.trusted_until

    def require(self) -> None:
        """Raise LeaseLost unless the lease can be trusted now."""
        if not self.is_trusted:
            name = f"segment {self.segment}"
            raise LeaseLost(name, self.answer.holder_id)

    def _is_sold(self, error: BaseException | None) -> bool | None:
        """Return whether a block that ended with `error` has sold the order; None if that is unknown."""
        return None if isinstance(error, self.keep_on) else error is None

    def _ending(self, *, is_sold: bool | None) -> Operation[Any]:
        """Return the operation that ends the grant; with None, one that frees its segment and leaves the order open."""
        order = self.pool.sku, self.order_id, self.answer.holder_id
        if is_sold is None:
            return ReleaseGrant(*order)
        return Confirm(*order) if is_sold else Cancel(*order)

    def _owe(self, failure: BaseException, ending: Operation[Any]) -> LeaseState | None:
        """Note an end that failed; return what a keeper is to repeat, unless the store has refused it.

        The body has run: a customer may have paid. So the end is repeated until the hold ends, as a release is.
        """
        if self._is_settled or self._owed is not None or isinstance(failure, GeneratorExit):
            return None
        if isinstance(failure, SegmentedError) and not isinstance(failure, StoreUnavailable):
            return None
        claim = EndClaim(f"segment {self.segment}", self.holder_id, self._hold_ms, ending)
        acquired = Acquired(self.fencing_token, self._hold_ms, replay=False)
        self._owed = LeaseState(claim, acquired, self._clock.now(), self._clock)
        self._owed.owe_release(at_once=not isinstance(failure, SegmentedError))
        return self._owed

    def _withdraw(self) -> None:
        """Stop the keeper from repeating an earlier end: the caller asks for one again."""
        if self._owed is not None:
            self._owed.has_ended = True
            self._owed = None

    def _begin_body(self) -> None:
        """Raise InvalidInput if the grant has ended: one grant runs one body."""
        if self._is_settled:
            message = f"the grant of order {self.order_id!r} has ended: ask for the order again, and use the new answer"
            raise InvalidInput(message)

    def _note_dropped(self) -> str | None:
        if not self.is_trusted or self._is_handed_on or THIS.process_id != self._process_id:
            return None
        stay = plural(self.quantity, "unit", "stays")
        return (
            f"grant of order {self.order_id!r} was dropped: its {self.quantity} {stay} "
            "reserved until its hold ends; confirm or cancel it, or use it in a with statement"
        )

    def note_renewal(self, answer: Renewed | Lost, asked_at: float) -> None:
        """Trust the lease as long as a renewal, requested at local time `asked_at`, says."""
        if isinstance(answer, Lost):
            events.count("segmented.lease.losses", 1, ("segment",))
            self.trusted_until = asked_at
        else:
            self.trusted_until = trusted_until(asked_at, answer.ttl_ms)

    def __repr__(self) -> str:
        units = f"{self.quantity} {plural(self.quantity, 'unit')}, segment {self.segment}"
        return f"<{type(self).__name__} order {self.order_id!r}: {units}, token {self.fencing_token}>"


def unanswered_claim(operation: Grant, error: BaseException) -> EndClaim | None:
    """Return the claim to the segment that a grant which ended by `error` may have taken, for the keeper that frees it.

    None if it took none, or if the caller chose the holder id: a repeat may continue with the lease already.
    """
    if operation.repeatable or not isinstance(error, StoreUnavailable) or isinstance(error, StoreBusy):
        return None
    name, order_id = f"a segment of {operation.sku}", operation.order.order_id
    ending = ReleaseGrant(operation.sku, order_id, operation.holder_id)
    return EndClaim(name, operation.holder_id, operation.ttl_ms, ending)


class Granting(Generic[GrantT]):
    """A pending grant: an awaitable and an asynchronous context manager."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, GrantT | Refusal]]) -> None:
        """Create a pending call; `ask` is called when this is awaited or entered."""
        self._ask = ask
        self._grant: GrantT | None = None

    def __await__(self) -> Generator[Any, Any, GrantT | Refusal]:
        """Return the grant or the refusal."""
        return self._ask().__await__()

    async def __aenter__(self) -> GrantT:
        """Return the grant; raises NotGranted on a refusal."""
        answer = await self
        if isinstance(answer, Refusal):
            raise NotGranted(answer)
        self._grant = answer
        await answer.__aenter__()
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised."""
        if self._grant is not None:
            await self._grant.__aexit__(kind, error, trace)
