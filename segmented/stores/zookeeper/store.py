"""The stores, sync and async. Each acquire and each release creates a short-lived store, which sends its requests.

A store remembers which contenders it has requested and which of them may still exist. `close` hands those to the
session, which deletes them in the background. So nothing stays in the queue, even if the plan failed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

from segmented.errors import SegmentedError
from segmented.plans.tasks import Alarm
from segmented.protocol.zookeeper.operations import (
    CreateContender,
    DeleteContender,
    LearnSessionTime,
    LookAtSession,
    Unanswered,
    WatchContender,
)
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups
from segmented.stores.zookeeper.requests import CONFIRMING, answer, begin, begin_uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation
    from segmented.stores.zookeeper.session import ZooKeeperSession

AnswerT = TypeVar("AnswerT")

ANSWER_SECONDS: Final = 5.0
"""Maximum seconds for one request, if its deadline is not earlier."""


class _Requests:
    """The bookkeeping of requests, shared by both stores."""

    _begin: ClassVar = staticmethod(begin)

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.clock = session.clock
        self._loose: dict[str, str] = {}
        """Holder id -> parent, of contenders that may exist and did not become a lease."""
        self._watches: list[tuple[str, Callable[[], None]]] = []

    def keep(self, holder_id: str) -> None:
        """Keep a contender: it has become a lease."""
        self._loose.pop(holder_id, None)

    def _send(self, operation: Any, wake: Callable[[str], None]) -> Any:  # noqa: ANN401  # any operation, kazoo's result
        self.session.require(operation.era)
        if not self.session.is_connected:
            message = f"there is no connection to ZooKeeper at {self.session.where}"
            raise Unanswered(message)
        match operation:
            case CreateContender(parent=parent, holder_id=holder_id):
                self._loose[holder_id] = parent
            case WatchContender(contender=contender, channel=channel):
                callback = partial(wake, channel)
                self._watches.append((contender.path, callback))
                self.session.watch(contender.path, callback)
        return self._begin(self.session, operation)

    def _receive(self, operation: Any, result: Any, asked_at: float) -> Any:  # noqa: ANN401  # as above
        if not result.ready():
            message = f"ZooKeeper at {self.session.where} did not answer in time; whether the operation ran is unknown"
            raise Unanswered(message)
        found = answer(self.session, operation, result)
        self.session.require(operation.era)
        if isinstance(operation, CONFIRMING):
            self.session.note_contact(operation.era, asked_at)
        if isinstance(operation, DeleteContender):
            self._loose.pop(operation.contender.holder_id, None)
        return found

    def _finish(self) -> None:
        for path, callback in self._watches:
            self.session.unwatch(path, callback)
        for holder_id, parent in self._loose.items():
            self.session.abandon(parent, holder_id)
        self._loose.clear()


class ZooKeeperStore(_Requests):
    """The store for threads."""

    _begin = staticmethod(begin_uninterrupted)

    def __init__(self, session: ZooKeeperSession) -> None:
        """Attach to the session until closed."""
        super().__init__(session)
        self.wakeups = ThreadWakeups(self.clock)
        session.attach(self)

    def wake_all(self) -> None:
        """Wake every waiter, so that it checks again."""
        self.wakeups.signal_all()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation; raises Unanswered if the local time `deadline` passes first."""
        return cast("AnswerT", self._execute(operation, deadline))

    def _execute(self, operation: Operation[Any], deadline: float) -> Any:  # noqa: ANN401  # the operation's answer
        asked_at = self.clock.now()
        seconds = max(0.0, min(deadline - asked_at, ANSWER_SECONDS))
        match operation:
            case LookAtSession(era):
                return self.session.look(era)
            case LearnSessionTime(era):
                return self.session.learn_time(era, seconds)
        result = self._send(operation, self.wakeups.signal)
        result.wait(seconds)
        return self._receive(operation, result, asked_at)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one after the other; one answer or error each."""
        answers: list[AnswerT | SegmentedError] = []
        for operation in operations:
            try:
                answers.append(self.execute(operation, deadline=deadline))
            except SegmentedError as error:
                answers.append(error)
        return answers

    def close(self) -> None:
        """Detach from the session; remaining contenders are deleted in the background."""
        self._finish()
        self.session.detach(self)

    def __enter__(self) -> Self:
        """Return the store; the end of the `with` statement closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class AsyncZooKeeperStore(_Requests):
    """The store for the running event loop."""

    def __init__(self, session: ZooKeeperSession) -> None:
        """Attach to the session until closed."""
        super().__init__(session)
        self.wakeups = AsyncioWakeups(self.clock)
        self._loop = asyncio.get_running_loop()
        session.attach(self)

    def wake_all(self) -> None:
        """Wake every waiter, so that it checks again. Called from any thread."""
        post(self._loop, self.wakeups.signal_all)

    def _wake(self, channel: str) -> None:
        post(self._loop, partial(self.wakeups.signal, channel))

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation; raises Unanswered if the local time `deadline` passes first."""
        return cast("AnswerT", await self._execute(operation, deadline))

    async def _execute(self, operation: Operation[Any], deadline: float) -> Any:  # noqa: ANN401  # the operation's answer
        asked_at = self.clock.now()
        seconds = max(0.0, min(deadline - asked_at, ANSWER_SECONDS))
        match operation:
            case LookAtSession(era):
                return self.session.look(era)
            case LearnSessionTime() if self.session.trust.session_seconds is not None:
                return None
            case LearnSessionTime(era):
                return await asyncio.to_thread(self.session.learn_time, era, seconds)
        result = self._send(operation, self._wake)
        is_ready = asyncio.Event()
        result.rawlink(lambda _: post(self._loop, is_ready.set))
        with suppress(TimeoutError), Alarm(seconds):
            await is_ready.wait()
        return self._receive(operation, result, asked_at)

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one after the other; one answer or error each."""
        answers: list[AnswerT | SegmentedError] = []
        for operation in operations:
            try:
                answers.append(await self.execute(operation, deadline=deadline))
            except SegmentedError as error:
                answers.append(error)
        return answers

    async def close(self) -> None:
        """Detach from the session; remaining contenders are deleted in the background."""
        self.close_now()

    def close_now(self) -> None:
        """Close without awaiting, for when nothing can be awaited any more."""
        self._finish()
        self.session.detach(self)

    def __enter__(self) -> Self:
        """Return the store; the end of the `with` statement closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close_now()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run a callback in the loop, from any thread; do nothing if the loop is closed."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:  # closed in the meantime
            return
