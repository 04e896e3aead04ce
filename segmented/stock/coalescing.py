"""Concurrent calls of one event loop, merged into batches.

An idle lane sends a call at once, in the loop's next pass, together with the other calls of that pass. While a batch is
in flight the next calls gather; they are sent when it has ended, or when there are 500 of them. So no call waits for
others to arrive, and a busier loop gets larger batches. No task runs while there are no calls, so there is nothing to
close.

A reserve that is cancelled before its batch was sent is not sent. One that is cancelled later ends at once; its
reservation is cancelled when the answer comes, unless another caller asks for the same order. A confirm or a cancel is
sent even if its caller is gone: it was decided.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

from segmented import protocol as op
from segmented.errors import InvalidInput, SegmentedError
from segmented.models import Busy, Order, Reserved, Settled, Taken
from segmented.plans import run_async
from segmented.plans.tasks import begun, is_unanswered, repeat_later
from segmented.plans.waiting import UNDO_SECONDS
from segmented.stock.plans import while_busy_plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from segmented.plans.drivers import AsyncStore
    from segmented.stock.outbox import Noted
    from segmented.stock.sold_out_mark import SoldOutMark

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")

GATHERED_MAX: Final = 500
"""Maximum number of calls in a batch: more would cost the server no less each, while this process has nothing to do."""
LANES_MAX: Final = 16
"""Holds of different length that are reserved in batches of their own, before idle lanes are dropped."""
UNDER_WAY_MAX: Final = 2
"""Maximum number of batches of one lane in flight: one on the server, and one, if full, being encoded or read here."""

_log = logging.getLogger("segmented.stock")


class Lane(Generic[AskedT, AnswerT]):
    """Calls of one kind. `perform` answers a batch, in its order, with an answer or a failure for each call."""

    def __init__(
        self,
        perform: Callable[[list[AskedT]], Awaitable[Sequence[AnswerT | SegmentedError]]],
        note_unheard: Callable[[list[tuple[AskedT, AnswerT | None]]], None] | None = None,
        *,
        store: object = None,
    ) -> None:
        """Create a lane; `note_unheard` gets every cancelled call, with its answer if any. Unsent calls are dropped.

        Without it, a call whose caller was cancelled is sent like any other, and repeated while its `store` is open.
        """
        self._perform = perform
        self._note_unheard = note_unheard
        self._store = store
        self._asked: list[AskedT] = []
        self._futures: list[asyncio.Future[AnswerT]] = []
        """The calls that wait, and at the same places the futures of their answers."""
        self._under_way = 0
        self._tasks: dict[asyncio.Task[Any] | None, bool] = {}
        """The running tasks, and whether each has begun; the loop holds only weak references to them."""

    def ask(self, asked: AskedT, loop: asyncio.AbstractEventLoop) -> asyncio.Future[AnswerT]:
        """Return a future of the answer; `loop` is the running one."""
        future: asyncio.Future[AnswerT] = loop.create_future()
        self._asked.append(asked)
        self._futures.append(future)
        count = self._under_way
        if count == 0 or (count < UNDER_WAY_MAX and len(self._asked) >= GATHERED_MAX):
            self._begin()
        return future

    @property
    def is_idle(self) -> bool:
        """Return whether no call waits or is in flight."""
        return not self._asked and not self._under_way

    def _begin(self) -> None:
        self._under_way += 1
        task = asyncio.create_task(begun(self._run))
        self._tasks[task] = False
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget a task. If it was cancelled before its first step, another one sends the calls that still wait."""
        if not self._tasks.pop(task):
            self._under_way -= 1
            if self._asked and not self._under_way:
                self._begin()

    def _next(self, count: int) -> tuple[list[AskedT], list[asyncio.Future[AnswerT]]]:
        """Take up to `count` calls out of those that wait."""
        asked, futures = self._asked[:count], self._futures[:count]
        del self._asked[:count], self._futures[:count]
        assert len(asked) == len(futures), "each call has one future"
        return asked, futures

    async def _run(self) -> None:
        """Send batches until no calls are left."""
        self._tasks[asyncio.current_task()] = True
        try:
            while self._asked:
                await self._send(*self._next(GATHERED_MAX))
                await asyncio.sleep(0)  # callers just answered may call again: one batch, not two
        except asyncio.CancelledError:  # the loop is being shut down: nothing else would answer
            asked, futures = self._next(len(self._asked))
            for future in futures:
                future.cancel()
            self._report(asked, futures)
            if self._note_unheard is None and asked:  # decided, though nobody waits any more
                with suppress(SegmentedError):
                    await self._perform(asked[: op.BATCH_MAX])
            raise
        finally:
            self._under_way -= 1  # in the same step as the last check for waiting calls

    async def _send(self, asked: list[AskedT], futures: list[asyncio.Future[AnswerT]]) -> None:
        if self._note_unheard is not None and True in [future.done() for future in futures]:
            self._report(asked, futures)
            asked = [one for one, future in zip(asked, futures, strict=True) if not future.done()]
            futures = [future for future in futures if not future.done()]
        if not asked:
            return
        try:
            answers = await self._perform(asked)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            self._report(asked, futures)
            raise
        except Exception as error:  # noqa: BLE001  # every failure belongs to the callers
            _fail(error, futures)
            unheard = [one for one, future in zip(asked, futures, strict=True) if future.cancelled()]
            if unheard:  # if they were reserved, their holds will expire
                kind = "decisions" if self._note_unheard is None else "reservations"
                _log.warning("%s.unknown count=%d: %s", kind, len(unheard), error)
                if self._note_unheard is None and is_unanswered(error):
                    repeat_later(lambda: self._perform(unheard), self._store)
            self._report(asked, futures)
            return
        assert len(answers) == len(futures), "the store answers each call of a batch"
        if not _tell(futures, answers):
            self._report(asked, futures, answers)

    def _report(
        self,
        asked: Sequence[AskedT],
        futures: Sequence[asyncio.Future[AnswerT]],
        answers: Sequence[AnswerT | SegmentedError] | None = None,
    ) -> None:
        """Report which of the calls were cancelled, with the answers that they would have got."""
        if self._note_unheard is None:
            return
        unheard: list[tuple[AskedT, AnswerT | None]] = []
        for index, future in enumerate(futures):
            if future.cancelled():
                answer = None if answers is None else answers[index]
                unheard.append((asked[index], None if isinstance(answer, SegmentedError) else answer))
        if unheard:
            self._note_unheard(unheard)


def _tell(futures: Sequence[asyncio.Future[AnswerT]], answers: Sequence[AnswerT | SegmentedError]) -> bool:
    """Give each waiting caller its answer; return whether all callers were waiting."""
    do_all_wait = True
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            do_all_wait = False
        elif isinstance(answer, SegmentedError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
    return do_all_wait


def _fail(error: Exception, futures: Sequence[asyncio.Future[AnswerT]]) -> None:
    """Fail every caller. Each gets an exception of its own, because raising one modifies it."""
    for place, future in enumerate([one for one in futures if not one.done()]):
        own = error
        if place and isinstance(error, SegmentedError):
            own = type(error).__new__(type(error), *error.args)
            own.__dict__.update(error.__dict__)
            own.__cause__ = error
        future.set_exception(own)


class _Asked:
    """Concurrent reserves of one order id: waiting callers, and cancelled ones whose answer has not come yet."""

    __slots__ = ("count", "is_kept", "owed")

    def __init__(self) -> None:
        self.count = 1
        self.is_kept = False
        """Whether a caller has received the units."""
        self.owed: Reserved | None = None
        """The reservation made for a caller that had been cancelled."""


ALONE: Final = _Asked()
"""Stands for the one caller of an order that nobody else asks for: most orders have no other. It is never changed."""


class Coalescing:
    """The calls of one pool in one event loop: a lane for each operation that can serve many orders."""

    def __init__(self, store: AsyncStore, sku: str, mark: SoldOutMark, noted: Noted) -> None:
        """Create the lanes. The sold-out mark may refuse a reserve here, and is cleared when units were returned."""
        self._store = store
        self._sku = sku
        self._mark = mark
        self._noted = noted
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin()

    def _begin(self) -> None:
        """Reset all calls: at creation, or after the previous loop was closed, when its callers are gone."""
        self._reserving: dict[tuple[int, bool], Lane[Order, Taken]] = {}
        """By the length of the hold in milliseconds, and whether fewer units will do."""
        self._confirming: Lane[str, Settled] = Lane(self._settler("confirmed"), store=self._store)
        self._cancelling: Lane[str, Settled] = Lane(self._settler("cancelled"), store=self._store)
        self._asked: dict[str, _Asked] = {}
        self._owed: dict[str, Reserved] = {}
        self._going_back: dict[str, Reserved] = {}
        self._giver: asyncio.Task[None] | None = None

    def enter_loop(self) -> asyncio.AbstractEventLoop:
        """Bind to the running loop; raises InvalidInput while the previous calls' loop is not closed."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return loop
        if self._loop is not None:
            if not self._loop.is_closed():
                message = f"pool {self._sku!r} is in use by another event loop: make an AsyncPool for each loop"
                raise InvalidInput(message)
            self._begin()
        self._loop = loop
        return loop

    async def reserve(self, order: Order, hold_ms: int, *, partial: bool) -> Taken:
        """Reserve units. If the caller is cancelled, its units are returned, unless another caller has the order.

        Another caller is detected if it reserves through this object, or if the server's record shows a grant, a
        confirm or a cancel. Two cases are missed, and that caller gets units that are cancelled at once: a repeat by
        `reserve_many` or by another process, which leaves no trace in the record; and a grant between the reading of
        the record and the cancel, two consecutive steps.
        """
        mark, asked_at = self._mark, 0.0
        if mark.seconds:
            refused = mark.refusal(order, partial=partial)
            if refused is not None:
                return refused
            asked_at = mark.now()
        loop = self.enter_loop()
        order_id = order.order_id
        while order_id in self._going_back and self._giver is not None:
            await asyncio.wait((self._giver,))  # a repeat must not get units that are being cancelled
        if order_id in self._asked or order_id in self._owed:
            self._join(order_id)
        else:
            self._asked[order_id] = ALONE
        future = self._lane(hold_ms, partial=partial).ask(order, loop)
        try:
            answer = await future
        except asyncio.CancelledError:
            if not future.cancelled():  # answered in the same pass of the loop as the cancellation
                self._note_unheard([(order, None if future.exception() else future.result())])
            raise  # otherwise the lane reports it when the answer comes
        except Exception:
            self._end(order_id)
            raise
        if self._asked[order_id] is ALONE:
            del self._asked[order_id]
        else:
            self._end(order_id, is_kept=isinstance(answer, Reserved))
        if mark.seconds:
            mark.note(order_id, answer, asked_at)
        return answer

    def _lane(self, hold_ms: int, *, partial: bool) -> Lane[Order, Taken]:
        lane = self._reserving.get((hold_ms, partial))
        if lane is None:
            if len(self._reserving) >= LANES_MAX:
                self._reserving = {key: one for key, one in self._reserving.items() if not one.is_idle}
            lane = Lane(self._reserver(hold_ms, partial=partial), self._note_unheard)
            self._reserving[hold_ms, partial] = lane
        return lane

    def _join(self, order_id: str) -> None:
        """Count one more call of an order that others ask for, or whose units are owed."""
        if order_id in self._asked:
            self._counted(order_id).count += 1
        else:
            self._asked[order_id] = _Asked()
        if order_id in self._owed:
            self._counted(order_id).owed = self._owed.pop(order_id)

    def _counted(self, order_id: str) -> _Asked:
        """Return what is known of an order's calls, to change it."""
        asked = self._asked[order_id]
        if asked is ALONE:
            asked = self._asked[order_id] = _Asked()
        return asked

    def confirm(self, order_id: str) -> asyncio.Future[Settled]:
        """Request to make an order final."""
        return self._confirming.ask(order_id, self.enter_loop())

    def cancel(self, order_id: str) -> asyncio.Future[Settled]:
        """Request to return an order's units."""
        return self._cancelling.ask(order_id, self.enter_loop())

    def _reserver(
        self, hold_ms: int, *, partial: bool
    ) -> Callable[[list[Order]], Awaitable[Sequence[Taken | SegmentedError]]]:
        async def perform(orders: list[Order]) -> Sequence[Taken | SegmentedError]:
            operation = op.ReserveMany(self._sku, tuple(orders), hold_ms, partial)
            if not self._noted.covers(hold_ms):
                await run_async(self._noted.hold_plan(self._sku, hold_ms), self._store)
            answers = await self._store.execute(operation)
            if Busy in {*map(type, answers)}:
                return await run_async(while_busy_plan(operation, [*answers]), self._store)
            return answers

        return perform

    def _settler(
        self, state: Literal["confirmed", "cancelled"]
    ) -> Callable[[list[str]], Awaitable[Sequence[Settled | SegmentedError]]]:
        async def perform(order_ids: list[str]) -> Sequence[Settled | SegmentedError]:
            operation = op.SettleMany(self._sku, state, tuple(order_ids))
            try:
                answers = await self._store.execute(operation)
            finally:
                if state == "cancelled":  # here, because the caller may be gone; also if the reply was lost
                    self._mark.clear()
            return cast("Sequence[Settled | SegmentedError]", answers)  # None: "expired" only

        return perform

    def _note_unheard(self, unheard: list[tuple[Order, Taken | None]]) -> None:
        """Note the end of cancelled calls, and the reservations made for them."""
        for order, answer in unheard:
            if isinstance(answer, Reserved) and not answer.replay:  # a replay belongs to an earlier caller
                self._counted(order.order_id).owed = answer
            self._end(order.order_id)

    def _end(self, order_id: str, *, is_kept: bool = False) -> None:
        """Note the end of one call. After the last one the units are returned, unless a caller received them."""
        asked = self._counted(order_id)
        asked.is_kept = asked.is_kept or is_kept
        asked.count -= 1
        if asked.count:
            return
        del self._asked[order_id]
        if asked.owed is None or asked.is_kept:
            return
        self._owed[order_id] = asked.owed
        self._start_giving()

    def _start_giving(self) -> None:
        if self._owed and self._giver is None:
            self._giver = asyncio.create_task(begun(self._give_back))
            self._giver.add_done_callback(self._given)

    def _given(self, giver: asyncio.Task[None]) -> None:
        """Start another task in place of one that was cancelled before its first step."""
        if self._giver is giver:
            self._giver = None
            self._start_giving()

    async def _give_back(self) -> None:
        """Cancel owed reservations, for a short time only. One task per page: a repeat waits for its own page only."""
        giver = self._giver
        page = dict(list(self._owed.items())[: op.BATCH_MAX])
        if not page:  # other callers have asked for those orders since
            self._giver = None
            return
        for order_id in page:
            del self._owed[order_id]
        self._going_back = page
        try:
            await self._take_back(page)
        except (Exception, asyncio.CancelledError) as error:
            _log.warning("reservations.kept sku=%s count=%d: %r", self._sku, len(page), error)
            if not isinstance(error, SegmentedError):
                raise
        finally:
            if self._giver is giver:  # not a later loop's
                self._going_back, self._giver = {}, None
        self._start_giving()

    async def _take_back(self, page: dict[str, Reserved]) -> None:
        """Cancel the reservations that no caller has touched since."""
        deadline = self._store.clock.now() + UNDO_SECONDS
        records = await self._store.execute(op.ReadOrders(self._sku, tuple(page)), deadline=deadline)
        order_ids = tuple(
            record.order_id
            for record in records
            if record is not None
            and record.holder_id is None
            and (record.state, record.sequence) == ("reserved", page[record.order_id].sequence)
        )
        if not order_ids:
            return
        answers = await self._store.execute(
            op.SettleMany(self._sku, "cancelled", order_ids, unheard=True), deadline=deadline
        )
        self._mark.clear()
        given_back = sum(isinstance(answer, Settled) and answer.state == "cancelled" for answer in answers)
        _log.info("reservations.given_back sku=%s count=%d of=%d", self._sku, given_back, len(order_ids))
