"""A process of contenders: threads that take locks, and a thread whose asyncio tasks do, until the supervisor's word.

A task is cancelled before its first step, in the acquire, in the body, or in the release; or it belongs to a task group
of which another task fails. It uses the lock as a program would, with a `with` block or `try` and `finally`. Only its
requests to the resource are never cut in two, because they block the loop: a holder that was cancelled leaves the
resource, and then releases.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Final

import redis

from segmented.clock import SystemClock
from segmented.plans.drivers import AsyncStore, Store
from segmented.stores.quorum import AsyncQuorumStore, QuorumStore
from segmented.stores.redis import AsyncRedisStore
from tests.torture.locks.resource import ResourceClient, ServerGone
from tests.torture.locks.rounds import (
    NOT_ACQUIRED,
    NOT_RELEASED,
    Assignment,
    ContendedLock,
    Round,
    draw_round,
    lock_of,
    reason_of,
)
from tests.torture.locks.servers import called, connections_of
from tests.torture.supervisor import connected, crash, wait_for_end

CLOSED_SECONDS: Final = 30.0
"""Seconds for a server to notice that connections were closed."""
LOOK_SECONDS: Final = 0.05
ANSWER_TIMEOUT: Final = 0.2
"""Seconds that a quorum lock waits for a server: several processes share few cores."""

_clock = SystemClock()


class Contender(threading.Thread):
    """A thread that takes locks until it is asked to stop."""

    def __init__(self, assignment: Assignment, index: int, store: Store, stop: threading.Event) -> None:
        """Create thread number `index` of the process."""
        super().__init__(daemon=True)
        self._assignment = assignment
        self._random = assignment.random(str(index))
        self._store = store
        self._stop_asked = stop
        self._client = ResourceClient(assignment.socket_path, assignment.process)

    def run(self) -> None:
        """Take locks. An error that no injected fault explains ends the process, so that the supervisor notices."""
        try:
            while not self._stop_asked.is_set():
                self._round()
        except ServerGone:
            self._stop_asked.set()
        except Exception:  # noqa: BLE001  # the supervisor must notice any error
            crash()

    def _round(self) -> None:
        drawn = draw_round(self._random, self._assignment)
        lock = lock_of(self._assignment.options.kind, self._store, drawn, self._random, in_task=False)
        asked_at = _clock.now()
        try:
            lease = lock.acquire()
        except NOT_ACQUIRED as error:
            reason = reason_of(error)
            self._client.miss(drawn.name, reason, _clock.now() - asked_at)
            if reason == "unavailable":
                self._stop_asked.wait(self._random.uniform(0.0, drawn.ttl))
            return
        self._use(lock, lease, drawn.hold_s, asked_at)

    def _use(self, lock: ContendedLock, lease: Any, hold_s: float, asked_at: float, *, is_again: bool = False) -> None:  # noqa: ANN401  # leases of several kinds
        accesses = self._client.enter(lock.requests(lease, now=_clock.now(), asked_at=asked_at))
        for step in range(2):
            self._stop_asked.wait(hold_s / 2)
            self._client.tell("write", accesses, lease)
            if step == 0 and lock.is_entered_again and not is_again:
                with suppress(*NOT_ACQUIRED):
                    self._use(lock, lock.acquire(), 0.0, asked_at, is_again=True)
        self._client.tell("leave", accesses, lease)
        with suppress(*NOT_RELEASED):
            lease.release()


def be_contender(pipe: Connection, assignment: Assignment) -> None:
    """Take locks until the supervisor asks for the end, and count what is left. First it sends the process's number."""
    assignment = replace(assignment, process=pipe.recv())
    stop = threading.Event()
    tasks_left: list[int] = []
    with ExitStack() as stack:
        store = _store(assignment, stack)
        threads: list[threading.Thread] = [
            Contender(assignment, index, store, stop) for index in range(assignment.options.threads)
        ]
        if assignment.options.tasks:
            threads.append(threading.Thread(target=_run_tasks, args=(assignment, stop, tasks_left), daemon=True))
        for thread in threads:
            thread.start()
        wait_for_end(pipe)
        stop.set()
        for thread in threads:
            thread.join()
    client = ResourceClient(assignment.socket_path, assignment.process)
    with suppress(ServerGone):
        client.finished(tasks=sum(tasks_left), connections=_connections_left(assignment))


def _run_tasks(assignment: Assignment, stop: threading.Event, left: list[int]) -> None:
    """Let tasks take locks until they are asked to stop, and note how many are left."""
    try:
        left.append(asyncio.run(contend(assignment, stop)))
    except BaseException:  # noqa: BLE001  # the supervisor must notice any error
        crash()


def _connections_left(assignment: Assignment) -> int:
    """Count this process's connections that the servers still list; they notice closed ones a little later."""
    with ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis.from_url(url)) for url in assignment.urls]
        until = _clock.now() + CLOSED_SECONDS
        while True:
            found = sum(len(connections_of(client, assignment.client_name)) for client in clients)
            if not found or _clock.now() >= until:
                return found
            time.sleep(LOOK_SECONDS)


def _store(assignment: Assignment, stack: ExitStack) -> Store:
    stores = [stack.enter_context(connected(called(url, assignment.client_name))) for url in assignment.urls]
    if len(stores) == 1:
        return stores[0]
    return stack.enter_context(QuorumStore(stores, answer_timeout=ANSWER_TIMEOUT))


BEFORE, ACQUIRE, BODY, RELEASE = "before", "acquire", "body", "release"
GROUP, NEVER = "group", "never"
MOMENTS: Final = (NEVER, BEFORE, ACQUIRE, BODY, RELEASE, GROUP)
WEIGHTS: Final = (3, 1, 5, 3, 4, 2)
SOON: Final = 0.5
"""Share of cancellations that come a few steps of the event loop after the moment. The rest come some time after it."""
STEPS_MAX: Final = 30
SECONDS_MAX: Final = {ACQUIRE: 0.1, BODY: 0.02, RELEASE: 0.003}
TWICE: Final = 0.2
"""Share of cancelled tasks that are cancelled again."""
BLOCKS: Final = 0.5
"""Share of tasks that use a `with` block."""
GROUP_SIZE: Final = 3
GROUP_SECONDS: Final = 0.1
"""Maximum seconds to the failure of a group's task."""
UNAVAILABLE_SECONDS: Final = 0.1
"""Seconds to the next round if the server could not be reached."""
END_SECONDS: Final = 30.0
"""Seconds for a task to end; the longest wait takes ten."""
GONE_SECONDS: Final = 30.0
"""Seconds for the tasks of a closed store to end: a keeper notices within five."""


class GroupFailed(Exception):
    """Raised by a task, so that its group fails."""


class TaskStuck(Exception):
    """A task did not end."""


class Unasked(Exception):
    """A task was cancelled, and nobody had cancelled it."""


class LockUse:
    """One use of a lock, by one task."""

    def __init__(self, client: ResourceClient, drawn: Round, lock: ContendedLock, *, is_block: bool) -> None:
        """Acquire `lock` as `drawn`."""
        self._client = client
        self._drawn = drawn
        self._lock = lock
        self._is_block = is_block
        self._asked_at = 0.0
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.phase = BEFORE
        self.is_used = False
        """Whether it came to its end, and released."""

    async def run(self) -> None:
        """Acquire, use the resource, and release."""
        self._reach(ACQUIRE)
        self._asked_at = _clock.now()
        try:
            if self._is_block:
                async with self._lock.acquire() as lease:
                    await self._use(lease)
            else:
                lease = await self._lock.acquire()
                try:
                    await self._use(lease)
                finally:
                    await lease.release()
        except NOT_ACQUIRED + NOT_RELEASED as error:
            if self.phase == ACQUIRE:
                reason = reason_of(error)
                self._client.miss(self._drawn.name, reason, _clock.now() - self._asked_at)
                if reason == "unavailable":
                    await asyncio.sleep(UNAVAILABLE_SECONDS)
        else:
            self.is_used = True

    async def when(self, phase: str, task: asyncio.Task[None]) -> None:
        """Return once it has reached `phase`, or `task`, which runs it, has ended."""
        reached = self._waiting.setdefault(phase, asyncio.get_running_loop().create_future())
        if self.phase != phase:
            await asyncio.wait({reached, task}, return_when=asyncio.FIRST_COMPLETED)

    def _reach(self, phase: str) -> None:
        self.phase = phase
        if phase in self._waiting and not self._waiting[phase].done():
            self._waiting[phase].set_result(None)

    async def _use(self, lease: Any, *, is_again: bool = False) -> None:  # noqa: ANN401  # leases of several kinds
        accesses = self._client.enter(self._lock.requests(lease, now=_clock.now(), asked_at=self._asked_at))
        try:
            self._reach(BODY)
            for step in range(1 if is_again else 2):
                await asyncio.sleep(0.0 if is_again else self._drawn.hold_s / 2)
                self._client.tell("write", accesses, lease)
                if step == 0 and self._lock.is_entered_again and not is_again:
                    with suppress(*NOT_ACQUIRED, *NOT_RELEASED):
                        async with self._lock.acquire() as inner:
                            await self._use(inner, is_again=True)
        finally:
            self._client.tell("leave", accesses, lease)
            if not is_again:
                self._reach(RELEASE)


class TaskContender:
    """Lets tasks use locks, one after another or in groups, and cancels them."""

    def __init__(self, assignment: Assignment, index: int, store: AsyncStore, client: ResourceClient) -> None:
        """Create contender number `index` of the process."""
        self._assignment = assignment
        self._random = assignment.random(f"task {index}")
        self._store = store
        self._client = client

    async def run(self, stop: threading.Event) -> None:
        """Let tasks use locks until it is asked to stop."""
        while not stop.is_set():
            (moment,) = self._random.choices(MOMENTS, WEIGHTS)
            if moment == GROUP:
                await self._group()
            else:
                await self._one(moment)

    def _drawn_use(self) -> LockUse:
        drawn = draw_round(self._random, self._assignment)
        lock = lock_of(self._assignment.options.kind, self._store, drawn, self._random, in_task=True)
        return LockUse(self._client, drawn, lock, is_block=self._random.random() < BLOCKS)

    async def _one(self, moment: str) -> None:
        use = self._drawn_use()
        task = asyncio.create_task(use.run())
        cancelled_in: str | None = None
        if moment not in {NEVER, BEFORE}:
            await use.when(moment, task)
            await self._some_time(moment)
        if moment != NEVER and not task.done():
            cancelled_in = use.phase
            task.cancel()
            if self._random.random() < TWICE:
                await self._some_time(RELEASE)
                task.cancel()
        await self._ended([task])
        if task.cancelled():
            if cancelled_in is None:
                raise Unasked
        else:
            task.result()
        if cancelled_in is not None:
            self._client.cancelled(cancelled_in, is_heeded=not use.is_used)

    async def _group(self) -> None:
        uses = [self._drawn_use() for _ in range(GROUP_SIZE)]
        tasks: list[asyncio.Task[None]] = []
        fails_after = self._random.uniform(0.0, GROUP_SECONDS)

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                tasks.extend(group.create_task(use.run()) for use in uses)
                await asyncio.sleep(fails_after)
                raise GroupFailed

        whole = asyncio.create_task(together())
        await self._ended([whole])
        try:
            whole.result()
        except* GroupFailed:
            pass
        for task in tasks:
            if task.cancelled():
                self._client.cancelled(GROUP, is_heeded=True)

    async def _some_time(self, moment: str) -> None:
        if self._random.random() < SOON:
            for _ in range(self._random.randrange(STEPS_MAX)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._random.uniform(0.0, SECONDS_MAX[moment]))

    async def _ended(self, tasks: list[asyncio.Task[None]]) -> None:
        _, going = await asyncio.wait(tasks, timeout=END_SECONDS)
        if going:
            raise TaskStuck(f"a task did not end in {END_SECONDS:g} s: {going}")


async def contend(assignment: Assignment, stop: threading.Event) -> int:
    """Contend with all tasks of the process until `stop`; return how many tasks are left after the store was closed."""
    async with AsyncExitStack() as stack:
        clients = [ResourceClient(assignment.socket_path, assignment.process) for _ in range(assignment.options.tasks)]
        for client in clients:
            stack.callback(client.close)
        stores = [
            await stack.enter_async_context(AsyncRedisStore(called(url, assignment.client_name)))
            for url in assignment.urls
        ]
        store: AsyncStore = stores[0]
        if len(stores) > 1:
            quorum = AsyncQuorumStore(stores, answer_timeout=ANSWER_TIMEOUT)
            store = await stack.enter_async_context(quorum)
        contenders = [TaskContender(assignment, index, store, client) for index, client in enumerate(clients)]
        with suppress(ServerGone):
            await asyncio.gather(*(contender.run(stop) for contender in contenders))
    until = _clock.now() + GONE_SECONDS
    while len(asyncio.all_tasks()) > 1 and _clock.now() < until:  # noqa: ASYNC110  # tasks of others have no event
        await asyncio.sleep(LOOK_SECONDS)  # a keeper ends by itself
    return len(asyncio.all_tasks()) - 1
