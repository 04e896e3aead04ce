"""Concurrent calls of one event loop, merged into batches.

An idle lane sends a call at once, in the loop's next pass, with those that the same pass brings. While a batch is under
way the next calls gather; they go when it has ended, or when there are 500 of them. So nobody waits for company,
and the busier the loop, the larger the batches. No task lives while nothing is asked, so nothing is to be closed.

A reserve that is cancelled before its batch was sent is not sent. One that is cancelled later hears of it at once; what
was reserved for it is cancelled when the answer comes, unless another caller asks for the same order. A confirm or a
cancel whose caller is gone is sent all the same: it was decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from segmented import protocol as op
from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.models import Busy, Order, Reserved, Settled, Taken
from segmented.plans import run_async
from segmented.plans.tasks import begun
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
        note_unheard: Callable[[list[tuple[AskedT, AnswerT | None]]], None] | None = None,
    ) -> None:
        """`note_unheard` is told of every cancelled call, with its answer if one came; a call not yet sent is not sent.

        Without it, a call whose caller was cancelled is sent like any other.
        """
        self._perform = perform
        self._note_unheard = note_unheard
        self._waiting: deque[tuple[AskedT, asyncio.Future[AnswerT]]] = deque()
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, asked: AskedT, loop: asyncio.AbstractEventLoop) -> asyncio.Future[AnswerT]:
        """Return what the answer will be in; `loop` is the running one."""
        future: asyncio.Future[AnswerT] = loop.create_future()
        self._waiting.append((asked, future))
        count = self._under_way
        if count == 0 or (count < UNDER_WAY_MAX and len(self._waiting) >= GATHERED_MAX):
            self._under_way += 1
            task = asyncio.create_task(begun(self._run))
            self._tasks.add(task)  # the loop itself would let it be collected
            task.add_done_callback(self._tasks.discard)
        return future

    async def _run(self) -> None:
        """Send batches as long as calls are there."""
        try:
            while self._waiting:
                await self._send([self._waiting.popleft() for _ in range(min(GATHERED_MAX, len(self._waiting)))])
                await asyncio.sleep(0)  # whoever has just been answered may ask again: one batch, not two
        except asyncio.CancelledError:  # the loop is being shut down: nobody else would answer
            left = [*self._waiting]
            self._waiting.clear()
            for _, future in left:
                future.cancel()
            self._report(left)
            raise
        finally:
            self._under_way -= 1  # with the last look at who waits, nothing in between

    async def _send(self, batch: list[tuple[AskedT, asyncio.Future[AnswerT]]]) -> None:
        calls = batch
        if self._note_unheard is not None:
            calls = [call for call in batch if not call[1].done()]
            if len(calls) < len(batch):
                self._report([call for call in batch if call[1].done()])
        if not calls:
            return
        try:
            answers = await self._perform([asked for asked, _ in calls])
        except asyncio.CancelledError:
            for _, future in calls:
                future.cancel()
            self._report(calls)
            raise
        except Exception as error:  # noqa: BLE001  # every failure belongs to the callers
            _fail(error, [future for _, future in calls])
            unheard_count = sum(future.cancelled() for _, future in calls)
            if unheard_count:  # the holds of reservations lapse, if they are there
                kind = "decisions" if self._note_unheard is None else "reservations"
                _log.warning("%s.unknown count=%d: %s", kind, unheard_count, error)
            self._report(calls)
            return
        if not _tell(calls, answers):
            self._report(calls, answers)

    def _report(
        self,
        calls: Sequence[tuple[AskedT, asyncio.Future[AnswerT]]],
        answers: Sequence[AnswerT | SegmentedError] | None = None,
    ) -> None:
        """Say which of the calls were cancelled, and what they would have been told."""
        if self._note_unheard is None:
            return
        unheard: list[tuple[AskedT, AnswerT | None]] = []
        for index, (asked, future) in enumerate(calls):
            if future.cancelled():
                answer = None if answers is None else answers[index]
                unheard.append((asked, None if isinstance(answer, SegmentedError) else answer))
        if unheard:
            self._note_unheard(unheard)


def _tell(calls: Sequence[tuple[AskedT, asyncio.Future[AnswerT]]], answers: Sequence[AnswerT | SegmentedError]) -> bool:
    """Give each caller that still waits its answer; says whether all did."""
    do_all_wait = True
    for (_, future), answer in zip(calls, answers, strict=True):
        if future.done():
            do_all_wait = False
        elif isinstance(answer, SegmentedError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
    return do_all_wait


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


class _Asked:
    """Those who ask to reserve one order id now: callers that wait, and cancelled ones whose answer is still out."""

    count = 1
    is_kept = False
    """Has a caller been told that it has the units?"""
    owed: Reserved | None = None
    """What was reserved for a caller that had been cancelled."""


class Coalescing:
    """The calls of one pool in one event loop: a lane for each kind of call that one operation can perform for many."""

    def __init__(self, store: AsyncStore, sku: str, hold_ms: int, returned: Callable[[], None]) -> None:
        """Tell `returned` when units were given back."""
        self._store = store
        self._sku = sku
        self._hold_ms = hold_ms
        self._returned = returned
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_moved = False
        self._begin()

    def _begin(self) -> None:
        """Forget every call: of none yet, or of a loop that is closed, whose callers are gone with it."""
        self._reserving: dict[bool, Lane[Order, Taken]] = {
            partial: Lane(self._reserver(partial=partial), self._note_unheard) for partial in (False, True)
        }
        self._confirming: Lane[str, Settled] = Lane(self._settler("confirmed", voided=False))
        self._cancelling: dict[bool, Lane[str, Settled]] = {
            voided: Lane(self._settler("cancelled", voided=voided)) for voided in (False, True)
        }
        self._asked: dict[str, _Asked] = {}
        self._owed: dict[str, Reserved] = {}
        self._going_back: dict[str, Reserved] = {}
        self._giver: asyncio.Task[None] | None = None

    def enter_loop(self) -> asyncio.AbstractEventLoop:
        """Belong to the running loop; raises InvalidInput while the loop of the calls before is not closed."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return loop
        if self._loop is not None:
            if not self._loop.is_closed():
                message = f"pool {self._sku!r} is in use by another event loop: make an AsyncPool for each loop"
                raise InvalidInput(message)
            self._begin()
            self._has_moved = True
        self._loop = loop
        return loop

    async def _execute(self, operation: op.Operation[AnswerT], deadline: float = inf) -> AnswerT:
        try:
            return await self._store.execute(operation, deadline=deadline)
        except RuntimeError as error:
            if not self._has_moved:
                raise
            message = f"the store of pool {self._sku!r} still had a connection of an event loop that is closed: {error}"
            raise StoreUnavailable(message) from error

    async def reserve(self, order: Order, *, partial: bool) -> Taken:
        """Ask for units. When the caller is cancelled, what it got is given back, unless another has the order.

        Others are found if they reserve through this object, or if the server's record shows them: a grant, a
        confirm, a cancel. Not found, so that it is told of units which are cancelled at once: a repeat by
        `reserve_many` or by another process, which leaves no trace in the record; and a grant that comes between the
        look at the record and the cancel, two steps that follow each other.
        """
        loop = self.enter_loop()
        order_id = order.order_id
        while order_id in self._going_back and self._giver is not None:
            await asyncio.wait((self._giver,))  # a repeat must not be told of units that are being cancelled
        asked = self._asked.get(order_id)
        if asked is None:
            asked = self._asked[order_id] = _Asked()
        else:
            asked.count += 1
        if self._owed:
            asked.owed = self._owed.pop(order_id, asked.owed)
        future = self._reserving[bool(partial)].ask(order, loop)
        answer: Taken | None = None
        try:
            answer = await future
        except asyncio.CancelledError:
            if not future.cancelled():  # answered in the very pass of the loop that brought the cancellation
                self._note_unheard([(order, None if future.exception() else future.result())])
            raise  # otherwise the lane says so when the answer is there
        except Exception:
            self._end(order_id, asked)
            raise
        if isinstance(answer, Reserved):
            asked.is_kept = True
        self._end(order_id, asked)
        return answer

    def confirm(self, order_id: str) -> asyncio.Future[Settled]:
        """Ask to make an order final."""
        return self._confirming.ask(order_id, self.enter_loop())

    def cancel(self, order_id: str, *, voided: bool) -> asyncio.Future[Settled]:
        """Ask to give the units back."""
        return self._cancelling[bool(voided)].ask(order_id, self.enter_loop())

    def _reserver(self, *, partial: bool) -> Callable[[list[Order]], Awaitable[list[Taken | SegmentedError]]]:
        async def perform(orders: list[Order]) -> list[Taken | SegmentedError]:
            operation = op.ReserveMany(self._sku, tuple(orders), self._hold_ms, partial)
            answers = list(await self._execute(operation))
            if any(type(answer) is Busy for answer in answers):
                return await run_async(while_busy_plan(operation, answers), self._store)
            return answers

        return perform

    def _settler(
        self, state: Literal["confirmed", "cancelled"], *, voided: bool
    ) -> Callable[[list[str]], Awaitable[Sequence[Settled | SegmentedError]]]:
        async def perform(order_ids: list[str]) -> Sequence[Settled | SegmentedError]:
            operation = op.SettleMany(self._sku, state, tuple(order_ids), voided)
            try:
                answers = await self._execute(operation)
            finally:
                if state == "cancelled":  # here, because the caller may be gone; also if the reply was lost
                    self._returned()
            return cast("Sequence[Settled | SegmentedError]", answers)  # None: "expired" only

        return perform

    def _note_unheard(self, unheard: list[tuple[Order, Taken | None]]) -> None:
        """Take note of cancelled calls that are over, and of what was reserved for them."""
        for order, answer in unheard:
            asked = self._asked[order.order_id]
            if isinstance(answer, Reserved) and not answer.replay:  # a replay was somebody's before
                asked.owed = answer
            self._end(order.order_id, asked)

    def _end(self, order_id: str, asked: _Asked) -> None:
        """One asks no more. With the last one the units go back, if nobody was told of them."""
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

    async def _give_back(self) -> None:
        """Cancel what is owed, in a short time or not at all. A task a page: a repeat waits for its own page only."""
        giver = self._giver
        page = dict(list(self._owed.items())[: op.BATCH_MAX])
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
            if self._giver is giver:  # not that of a later loop
                self._going_back, self._giver = {}, None
        self._start_giving()

    async def _take_back(self, page: dict[str, Reserved]) -> None:
        """Cancel those that nobody has touched since they were reserved."""
        deadline = self._store.clock.now() + UNDO_SECONDS
        records = await self._execute(op.ReadOrders(self._sku, tuple(page)), deadline=deadline)
        order_ids = tuple(
            record.order_id
            for record in records
            if record is not None
            and record.holder_id is None
            and (record.state, record.sequence) == ("reserved", page[record.order_id].sequence)
        )
        if not order_ids:
            return
        answers = await self._execute(op.SettleMany(self._sku, "cancelled", order_ids), deadline=deadline)
        self._returned()
        given_back = sum(isinstance(answer, Settled) and answer.state == "cancelled" for answer in answers)
        _log.info("reservations.given_back sku=%s count=%d of=%d", self._sku, given_back, len(order_ids))
