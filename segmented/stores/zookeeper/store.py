"""The stores, sync and async. Each acquire and each release creates a short-lived store, which sends its requests.

A store remembers which contenders it has requested and which of them may still exist. `close` hands those to the
session, which deletes them in the background. So nothing stays in the queue, even if the plan failed.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

from kazoo.exceptions import KazooException, NoNodeError

from segmented.errors import InvalidInput, SegmentedError, StoreRefused
from segmented.plans.store_kinds import NotPickled
from segmented.plans.tasks import Alarm
from segmented.protocol.zookeeper import (
    ConfirmSession,
    Contender,
    CreateContender,
    DeleteContender,
    Entered,
    LearnSessionTime,
    ListContenders,
    LookAtSession,
    MakeParent,
    ReadContender,
    Unanswered,
    WatchContender,
)
from segmented.stores.one_by_one import async_one_by_one, one_by_one
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups
from segmented.stores.zookeeper.caretaker import CONNECTION_ERRORS
from segmented.stores.zookeeper.paths import contender, contender_prefix, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation
    from segmented.stores.zookeeper.session import Session

IF_MISSING = {
    CreateContender: None,
    ListContenders: (),
    ReadContender: None,
    WatchContender: False,
    DeleteContender: False,
}
"""The answer if the node does not exist."""
CONFIRMING = (ConfirmSession, CreateContender, DeleteContender)
"""Operations that the leader itself answers, so they prove that the session is alive."""
AnswerT = TypeVar("AnswerT")

ANSWER_SECONDS: Final = 5.0
"""Maximum seconds for one request, if its deadline is not earlier."""


def begin(session: Session, operation: Operation[Any]) -> Any:  # noqa: ANN401  # kazoo's future
    """Send the request."""
    client = session.client
    match operation:
        case ConfirmSession():
            return client.sync_async("/")
        case MakeParent(parent=parent):
            return client.ensure_path_async(parent)
        case CreateContender(parent=parent, holder_id=holder_id):
            prefix = contender_prefix(parent, holder_id)
            return client.create_async(prefix, ephemeral=True, sequence=True, include_data=True)
        case ListContenders(parent=parent):
            return client.get_children_async(parent)
        case ReadContender(contender=found):
            return client.get_async(found.path)
        case WatchContender(contender=found):
            # Read it instead of calling `exists`, which would leave a watch behind on a deleted node.
            return client.get_async(found.path, watch=session.on_event)
        case DeleteContender(contender=found):
            return client.delete_async(found.path)
    raise TypeError(f"no ZooKeeper request performs {operation!r}")


def begin_uninterrupted(session: Session, operation: Operation[Any]) -> Any:  # noqa: ANN401  # kazoo's future
    """Send the request; from the main thread, use another thread, which signals do not interrupt.

    While it sends, kazoo treats every exception as a lost connection, so Ctrl-C would have no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        return begin(session, operation)
    with ThreadPoolExecutor(1, "segmented-zookeeper-send") as pool:
        try:
            sending = pool.submit(begin, session, operation)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            return begin(session, operation)
        return sending.result()


def answer(session: Session, operation: Operation[Any], result: Any) -> Any:  # noqa: ANN401  # by operation
    """Return the answer of a finished request; translate the driver's errors into ours."""
    error = result.exception
    if isinstance(error, NoNodeError) and type(operation) in IF_MISSING:
        return IF_MISSING[type(operation)]
    if isinstance(error, CONNECTION_ERRORS):
        raise Unanswered(f"the connection to ZooKeeper at {session.where} was lost") from error
    if isinstance(error, KazooException):
        message = f"ZooKeeper at {session.where} refused the operation: {str(error) or type(error).__name__}"
        raise StoreRefused(message) from error
    if error is not None:
        raise error
    return _read(session, operation, result.value)


def _read(session: Session, operation: Operation[Any], value: Any) -> Any:  # noqa: ANN401  # by operation
    match operation:
        case CreateContender(parent=parent):
            path, stat = value
            return _entered(contender(parent, path.rpartition("/")[2]), stat)
        case ReadContender(contender=found):
            _, stat = value
            session_id, _ = session.client.client_id or (None, b"")
            return _entered(found, stat) if stat.ephemeralOwner == session_id else None
        case ListContenders(parent=parent):
            return in_order(one for node in value if (one := contender(parent, node)) is not None)
        case WatchContender() | DeleteContender():
            return True
    return None


def _entered(found: Contender | None, stat: Any) -> Entered | None:  # noqa: ANN401  # kazoo's, untyped
    return None if found is None else Entered(found, stat.czxid)


class _Requests(NotPickled):
    """The bookkeeping of requests, shared by both stores."""

    _begin: ClassVar = staticmethod(begin)

    def __init__(self, session: Session) -> None:
        self.session = session
        self.clock = session.clock
        self._loose: dict[str, str] = {}
        """Holder id -> parent, of contenders that may exist and did not become a lease."""
        self._watches: list[tuple[str, Callable[[], None]]] = []

    def keep(self, holder_id: str) -> None:
        """Keep a contender: it has become a lease."""
        self._loose.pop(holder_id, None)

    def _send(self, operation: Any, wake: Callable[[str], None]) -> Any:  # noqa: ANN401  # any operation, kazoo's result
        if not hasattr(operation, "era"):
            raise InvalidInput(
                f"a ZooKeeper store performs no {type(operation).__name__}: show its nodes with ZooKeeper's own tools"
            )
        self.session.require(operation.era)
        if not self.session.is_connected:
            raise Unanswered(f"there is no connection to ZooKeeper at {self.session.where}")
        match operation:
            case CreateContender(parent=parent, holder_id=holder_id):
                self._loose[holder_id] = parent
            case WatchContender(contender=contender, channel=channel):
                callback = partial(wake, channel)
                self._watches.append((contender.path, callback))
                self.session.watch(contender.path, callback)
        return self._begin(self.session, operation)

    def _receive(self, operation: Any, result: Any, asked_at: float) -> Any:  # noqa: ANN401  # any operation, kazoo's result
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


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run a callback in the loop, from any thread; do nothing if the loop is closed."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:  # closed in the meantime
            return


class AsyncZooKeeperStore(_Requests):
    """The store for asyncio."""

    # threads: _begin = staticmethod(begin_uninterrupted)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.wakeups = AsyncioWakeups(self.clock)
        self._loop = asyncio.get_running_loop()  # asyncio only
        session.attach(self)

    def wake_all(self) -> None:
        """Wake every waiter, so that it checks again. Called from any thread."""
        post(self._loop, self.wakeups.signal_all)  # asyncio only
        # threads: self.wakeups.signal_all()

    def _wake(self, channel: str) -> None:  # asyncio only
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
                return await asyncio.to_thread(self.session.learn_time, era, seconds)  # asyncio only
                # threads: return self.session.learn_time(era, seconds)
        # threads: result = self._send(operation, self.wakeups.signal)
        # threads: result.wait(seconds)
        result = self._send(operation, self._wake)  # asyncio only
        is_ready = asyncio.Event()  # asyncio only
        result.rawlink(lambda _: post(self._loop, is_ready.set))  # asyncio only
        with suppress(TimeoutError), Alarm(seconds):  # asyncio only
            await is_ready.wait()
        return self._receive(operation, result, asked_at)

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one after the other; one answer or error each."""
        return await async_one_by_one(self, operations, deadline)

    async def close(self) -> None:
        """Detach from the session; remaining contenders are deleted in the background."""
        self._close_now()

    def _close_now(self) -> None:
        self._finish()
        self.session.detach(self)

    def __enter__(self) -> Self:
        """Return the store; the end of the `with` statement closes it, also where nothing can be awaited any more."""
        return self

    def __exit__(self, *_: object) -> None:
        self._close_now()


# --- For threads: written by `make sync` from the classes above. ---


class ZooKeeperStore(_Requests):
    """The store for threads."""

    _begin = staticmethod(begin_uninterrupted)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.wakeups = ThreadWakeups(self.clock)
        session.attach(self)

    def wake_all(self) -> None:
        """Wake every waiter, so that it checks again. Called from any thread."""
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
            case LearnSessionTime() if self.session.trust.session_seconds is not None:
                return None
            case LearnSessionTime(era):
                return self.session.learn_time(era, seconds)
        result = self._send(operation, self.wakeups.signal)
        result.wait(seconds)
        return self._receive(operation, result, asked_at)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one after the other; one answer or error each."""
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """Detach from the session; remaining contenders are deleted in the background."""
        self._close_now()

    def _close_now(self) -> None:
        self._finish()
        self.session.detach(self)

    def __enter__(self) -> Self:
        """Return the store; the end of the `with` statement closes it, also where nothing can be awaited any more."""
        return self

    def __exit__(self, *_: object) -> None:
        self._close_now()
