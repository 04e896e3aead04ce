"""Concurrent calls of one event loop, merged into batches.

An idle lane sends a call at once, in the loop's next pass, with those that the same pass brings. While a batch is under
way the next calls gather; they go when it has ended, or when there are 500 of them. So nobody waits for company,
and the busier the loop, the larger the batches. No task lives while nothing is asked, so nothing is to be closed.

A call that is cancelled before its batch was sent is not sent. One that is cancelled later hears of it at once; what
was reserved for it is cancelled when the answer comes, unless another caller asks for the same order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from segmented import operations as op
from segmented.errors import SegmentedError
from segmented.models import Busy, Order, Reserved, Settled, Taken
from segmented.plans import run_async
from segmented.plans.waiting import UNDO_SECONDS
from segmented.stock.plans import while_busy_plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Literal

    from segmented.plans.drivers import AsyncStore

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")

GATHERED_MAX: Final = 500
"""Calls in a batch. Twice as many would cost the server no less each, and a thousand callers would wait in one batch,
while this process has nothing to do."""
UNDER_WAY_MAX: Final = 2
"""Batches of one lane at a time: one on the server, and one, if it is full, being encoded or read here."""

_log = logging.getLogger("segmented.stock")


class Lane(Generic[AskedT, AnswerT]):
    """Calls of one kind. `perform` answers a batch, in its order, with an answer or a failure each."""

    def __init__(
        self,
        perform: Callable[[list[AskedT]], Awaitable[Sequence[AnswerT | SegmentedError]]],
        take_back: Callable[[list[tuple[AskedT, AnswerT]]], Awaitable[None]] | None = None,
    ) -> None:
        """`take_back` is given what was answered to callers that had been cancelled."""
        self._perform = perform
        self._take_back = take_back
        self._waiting: deque[tuple[AskedT, asyncio.Future[AnswerT]]] = deque()
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, asked: AskedT) -> asyncio.Future[AnswerT]:
        """Return what the answer will be in."""
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        count = self._under_way
        if count == 0 or (count < UNDER_WAY_MAX and len(self._waiting) >= GATHERED_MAX):
            self._under_way += 1
            task = asyncio.ensure_future(self._run())
            self._tasks.add(task)  # the loop itself would let it be collected
            task.add_done_callback(self._tasks.discard)
        return future

    def is_wanted(self, asked: AskedT) -> bool:
        """Is a living caller waiting to ask the same?"""
        return any(other == asked and not future.done() for other, future in self._waiting)

    async def _run(self) -> None:
        """Send batches as long as calls are there."""
        try:
            while self._waiting:
                await self._send([self._waiting.popleft() for _ in range(min(GATHERED_MAX, len(self._waiting)))])
                await asyncio.sleep(0)  # whoever has just been answered may ask again: one batch, not two
        except asyncio.CancelledError:  # the loop is being shut down: nobody else would answer
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            raise
        finally:
            self._under_way -= 1  # with the last look at who waits, nothing in between

    async def _send(self, batch: list[tuple[AskedT, asyncio.Future[AnswerT]]]) -> None:
        living = [call for call in batch if not call[1].done()]
        if not living:
            return
        try:
            answers = await self._perform([asked for asked, _ in living])
        except asyncio.CancelledError:
            for _, future in living:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  # every failure belongs to the callers
            _fail(error, [future for _, future in living])
            unheard_count = sum(future.cancelled() for _, future in living)
            if unheard_count and self._take_back is not None:
                _log.warning("reservations.unknown count=%d: %s", unheard_count, error)  # their holds lapse, if any
            return
        unheard = _tell(living, answers)
        if unheard and self._take_back is not None:
            heard = [asked for asked, future in living if not future.cancelled()]
            await self._take_back([(asked, answer) for asked, answer in unheard if asked not in heard])


def _tell(
    calls: Sequence[tuple[AskedT, asyncio.Future[AnswerT]]], answers: Sequence[AnswerT | SegmentedError]
) -> list[tuple[AskedT, AnswerT]]:
    """Give each caller its answer; return those that nobody waits for any more."""
    unheard: list[tuple[AskedT, AnswerT]] = []
    for (asked, future), answer in zip(calls, answers, strict=True):
        if isinstance(answer, SegmentedError):
            if not future.done():
                future.set_exception(answer)
        elif future.done():
            unheard.append((asked, answer))
        else:
            future.set_result(answer)
    return unheard


def _fail(error: Exception, futures: Sequence[asyncio.Future[AnswerT]]) -> None:
    """Tell every caller. Each gets an exception of its own, because raising one adds to it."""
    is_first = True
    for future in futures:
        if future.done():
            continue
        if is_first or not isinstance(error, SegmentedError):
            future.set_exception(error)
        else:
            own = type(error).__new__(type(error), *error.args)
            own.__dict__.update(error.__dict__)
            own.__cause__ = error
            future.set_exception(own)
        is_first = False


class Coalescing:
    """The calls of one pool: a lane for each kind of call that one operation can perform for many."""

    def __init__(self, store: AsyncStore, sku: str, hold_ms: int, returned: Callable[[], None]) -> None:
        """Tell `returned` when units were given back."""
        self._store = store
        self._sku = sku
        self._hold_ms = hold_ms
        self._returned = returned
        self._reserving: dict[bool, Lane[Order, Taken]] = {
            partial: Lane(self._reserver(partial=partial), self._take_back) for partial in (False, True)
        }
        self._confirming: Lane[str, Settled] = Lane(self._settler("confirmed", voided=False))
        self._cancelling: dict[bool, Lane[str, Settled]] = {
            voided: Lane(self._settler("cancelled", voided=voided)) for voided in (False, True)
        }

    def reserve(self, order: Order, *, partial: bool) -> asyncio.Future[Taken]:
        """Ask for units."""
        return self._reserving[bool(partial)].ask(order)

    def confirm(self, order_id: str) -> asyncio.Future[Settled]:
        """Ask to make an order final."""
        return self._confirming.ask(order_id)

    def cancel(self, order_id: str, *, voided: bool) -> asyncio.Future[Settled]:
        """Ask to give the units back."""
        return self._cancelling[bool(voided)].ask(order_id)

    def _reserver(self, *, partial: bool) -> Callable[[list[Order]], Awaitable[list[Taken | SegmentedError]]]:
        async def perform(orders: list[Order]) -> list[Taken | SegmentedError]:
            operation = op.ReserveMany(self._sku, tuple(orders), self._hold_ms, partial)
            answers = list(await self._store.execute(operation))
            if any(type(answer) is Busy for answer in answers):
                return await run_async(while_busy_plan(operation, answers), self._store)
            return answers

        return perform

    def _settler(
        self, state: Literal["confirmed", "cancelled"], *, voided: bool
    ) -> Callable[[list[str]], Awaitable[Sequence[Settled | SegmentedError]]]:
        async def perform(order_ids: list[str]) -> Sequence[Settled | SegmentedError]:
            operation = op.SettleMany(self._sku, state, tuple(order_ids), voided)
            return cast(
                "Sequence[Settled | SegmentedError]", await self._store.execute(operation)
            )  # None: "expired" only

        return perform

    async def _take_back(self, unheard: list[tuple[Order, Taken]]) -> None:
        """Cancel what was reserved for callers that had been cancelled, in a short time or not at all."""
        order_ids = tuple(
            {
                order.order_id: None
                for order, answer in unheard
                if isinstance(answer, Reserved)
                and not answer.replay  # it was somebody's before
                and not any(lane.is_wanted(order) for lane in self._reserving.values())
            }
        )
        if not order_ids:
            return
        operation = op.SettleMany(self._sku, "cancelled", order_ids)
        try:
            answers = await self._store.execute(operation, deadline=self._store.clock.now() + UNDO_SECONDS)
        except SegmentedError as error:
            _log.warning("reservations.kept sku=%s count=%d: %s", self._sku, len(order_ids), error)
            return
        self._returned()
        given_back = sum(isinstance(answer, Settled) and answer.state == "cancelled" for answer in answers)
        _log.info("reservations.given_back sku=%s count=%d of=%d", self._sku, given_back, len(order_ids))
