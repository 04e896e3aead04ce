"""Messages of Celery that are readable, and attempts without an answer."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final, TypeVar
from uuid import uuid4

import pytest
from celery import Celery, chain, chord, group
from kombu.exceptions import DecodeError

from segmented import (
    AsyncLock,
    AsyncMemoryStore,
    FairLock,
    Lock,
    MemoryStore,
    Pool,
    ReadWriteLock,
    ReentrantLock,
    StoreUnavailable,
    protocol as op,
)
from segmented.celery.apps import TASK_MODULES
from segmented.celery.consumer import Unreadable, check_message
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, LockUnreachable, SegmentedError, WrongKind
from segmented.keys import segment_of
from segmented.locks import operator
from segmented.locks.claim import HERE, new_holder_id
from segmented.locks.keeper import async_keeper
from segmented.models import Busy
from segmented.models.locks import LockHolder, LockState, Revoked
from segmented.plans import run_sync
from segmented.protocol import AcquireLock, Operation
from segmented.protocol.base import Release
from segmented.protocol.fair import AcquireFair, ReleaseFair
from segmented.stock import Grant
from segmented.stores.quorum import QuorumStore
from tests.support.contract.locks.kinds import HANDLES, Handles
from tests.support.workers.forged import BODIES


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False, include=TASK_MODULES)
    made.conf.task_default_queue = f"shop-{uuid4()}"  # the broker is the process's

    @made.task(name="shop.add", shared=False)
    def add(first: int, second: int) -> int:
        return first + second

    made.loader.import_default_modules()
    yield made
    made.close()


def messages(app: Celery) -> list[Any]:
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        found = []
        while (message := channel.basic_get(app.conf.task_default_queue, no_ack=True)) is not None:
            message.accept = {"application/json"}
            found.append(message)
    return found


def published(app: Celery) -> Any:  # noqa: ANN401  # a message whose fields are changed
    app.send_task("segmented.take_envelope", ({"v": 1, "sku": "mug", "orders": ["a"]},))
    (message,) = messages(app)
    return message


@pytest.mark.parametrize("protocol", [1, 2])
def test_whatever_celery_publishes_is_readable(app: Celery, protocol: int) -> None:
    app.conf.task_protocol = protocol
    add: Any = app.tasks["shop.add"]
    add.delay(1, 2)
    add.apply_async((1,), {"second": 2}, countdown=90_000, expires=100_000, time_limit=5, soft_time_limit=2.5)
    add.apply_async((1, 2), link=[add.s(3), chain(add.s(4), add.s(5))], link_error=add.si(0, 0), priority=3)
    add.apply_async((1, 2), retries=7, shadow="addition", headers={"tenant": 7}, ignore_result=True)
    chain(add.s(1, 2), add.s(3), group(add.s(4), add.s(5)), add.si(6, 7)).apply_async()
    chord([add.s(1, 2), add.s(3, 4)], add.si(5, 6)).apply_async()
    group(add.s(1, 2), add.s(3, 4)).apply_async()
    if protocol == 2:
        signature: Any = add.s(1, 2)
        signature.stamp(batch="7")
        signature.apply_async()
    found = messages(app)
    assert len(found) == {1: 9, 2: 10}[protocol]
    for message in found:
        check_message(message)


def test_any_arguments_of_take_envelope_pass_since_the_task_reads_them_itself(app: Celery) -> None:
    for arguments, named in (((), {}), ((1, 2, 3), {"sku": "mug"})):
        app.send_task("segmented.take_envelope", arguments, named)
    app.send_task("segmented.sweep", (1,))  # which takes none
    first, second, third = messages(app)
    task: Any = app.tasks["segmented.take_envelope"]
    check_message(first, task)
    check_message(second, task)
    with pytest.raises(Unreadable, match=r"^its arguments are not those of segmented\.sweep: too many positional"):
        check_message(third, app.tasks["segmented.sweep"])


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"countdown": 7_200}, "waits up to 3,600 s"),
        ({"retries": 6}, "it has 6 retries: segmented.take_order has up to 5"),
        ({"time_limit": 0.5}, "it sets a time limit of [0.5, None]: 1 s is the least"),
        ({"soft_time_limit": 0.5}, "it sets a time limit of [None, 0.5]: 1 s is the least"),
        ({"kwargs": {"more": 1}}, "its arguments are not those of segmented.take_order: got an unexpected keyword"),
    ],
)
def test_a_message_of_our_tasks_that_could_hold_up_a_worker_is_not(
    app: Celery, options: dict[str, Any], wrong: str
) -> None:
    app.send_task("segmented.take_order", ("mug", "a", 1), **options)
    (message,) = messages(app)
    check_message(message)
    with pytest.raises(Unreadable) as caught:
        check_message(message, app.tasks["segmented.take_order"])
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("task", 7, "its header 'task' is 7: it must be a text"),
        ("id", [], "its header 'id' is []: it must be a text"),
        ("retries", -5, "its header 'retries' is -5: it must be a whole number of up to 2,147,483,648 or null"),
        ("timelimit", [-1, None], "its header 'timelimit' is [-1, None]: it must be a list of two numbers above 0"),
        ("eta", "9999-12-31T23:59:59", "it must be a time in ISO 8601 or null"),
        ("callbacks", [5], "its header 'callbacks' is [5]: it must be a list of tasks or null"),
        ("get", 1, "its header 'get' has a name that Celery uses for itself"),
        ("_children", 1, "its header '_children' has a name that Celery uses for itself"),
    ],
)
def test_a_header_of_a_wrong_type_is_named(app: Celery, name: str, value: object, wrong: str) -> None:
    message = published(app)
    message.headers[name] = value
    with pytest.raises(Unreadable) as caught:
        check_message(message)
    assert wrong in str(caught.value)


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_a_body_of_another_shape_is_unreadable(app: Celery, body: object) -> None:
    message = published(app)
    message.body = json.dumps(body).encode()
    with pytest.raises(Unreadable, match=r"^its |^the third part of its body "):
        check_message(message)


def test_a_body_that_cannot_be_decoded_is_unreadable(app: Celery) -> None:
    message = published(app)
    message.body = b"\xff{"
    with pytest.raises(Unreadable, match=r"^it cannot be decoded: ") as caught:
        check_message(message)
    assert isinstance(caught.value.__cause__, DecodeError)


@pytest.mark.parametrize("name", ["stamps", "headers", "tenant"])
def test_a_header_that_is_nested_too_deeply_is_not_passed_on(app: Celery, name: str) -> None:
    message = published(app)
    message.headers[name] = {"a": json.loads("[" * 98 + "]" * 98)}
    check_message(message)
    message.headers[name] = {"a": json.loads("[" * 110 + "]" * 110)}
    with pytest.raises(Unreadable, match=r"^it has more than 100 lists and objects inside one another$"):
        check_message(message)


AnswerT = TypeVar("AnswerT")
SOON: Final = 120.0
LOST: Final = StoreUnavailable("the reply was lost")

LEASED: Final = [kind for kind in HANDLES if "background" in kind.offers and kind.servers == 1]


class LossyStore(MemoryStore):
    """Loses the replies of the next `lost` operations, of which it runs the first alone; tells when one released.

    What tells workers of a pool is none of them: its failures are not raised.
    """

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.lost = 0
        self.released = threading.Event()
        self._is_first = True

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.lost == 0 or isinstance(operation, op.NotePool | op.ReadNextDue):
            answer = super().execute(operation, deadline=deadline)
            if isinstance(operation, Release):
                self.released.set()
            return answer
        self.lost -= 1
        if self._is_first:
            self._is_first = False
            super().execute(operation, deadline=deadline)
        raise LOST


class AsyncLossyStore(AsyncMemoryStore):
    """The same for asyncio."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.lost = 0
        self.released = asyncio.Event()
        self._is_first = True

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.lost == 0 or isinstance(operation, op.NotePool | op.ReadNextDue):
            answer = await super().execute(operation, deadline=deadline)
            if isinstance(operation, Release):
                self.released.set()
            return answer
        self.lost -= 1
        if self._is_first:
            self._is_first = False
            await super().execute(operation, deadline=deadline)
        raise LOST


@pytest.mark.parametrize("kind", LEASED, ids=lambda kind: kind.title)
def test_a_lock_of_an_unanswered_attempt_is_released_once_the_store_answers(kind: Handles) -> None:
    store = LossyStore()
    lock: Any = kind.sync(store, "x")
    store.lost = 2 * kind.names  # the attempt and its undoing
    with pytest.raises(LockUnreachable):
        lock.acquire(timeout=0)
    assert store.released.wait(SOON)
    assert lock.try_acquire() is not None


@pytest.mark.parametrize("kind", LEASED, ids=lambda kind: kind.title)
def test_a_lock_of_an_unanswered_attempt_is_released_in_asyncio_too(kind: Handles) -> None:
    async def body() -> None:
        store = AsyncLossyStore()
        lock: Any = kind.asyncio(store, "x")
        store.lost = 2 * kind.names
        with pytest.raises(LockUnreachable):
            await lock.acquire(timeout=0)
        async with asyncio.timeout(SOON):
            await store.released.wait()
        assert await lock.try_acquire() is not None

    asyncio.run(body())


def test_the_segment_of_an_unanswered_grant_is_freed_and_its_units_await_the_repeat() -> None:
    store = LossyStore()
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=3, segments=1)
    store.lost = 1
    with pytest.raises(StoreUnavailable):
        pool.grant("a", timeout=0)
    assert store.released.wait(SOON)
    other, again = pool.grant("b", timeout=0), pool.grant("a", timeout=0)
    assert isinstance(other, Grant)
    assert isinstance(again, Busy)
    other.confirm()
    again = pool.grant("a", timeout=0)
    assert isinstance(again, Grant)
    assert (again.replay, again.confirm().quantity, pool.state().confirmed) == (True, 1, 2)


class DeafFrom(MemoryStore):
    """Loses all replies from the first operation of `kind` on; tells when a keeper has released a fair lock."""

    kind: type[object] = type(None)

    def __init__(self) -> None:
        super().__init__()
        self.is_deaf = False
        self.released = threading.Event()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.is_deaf:
            raise LOST
        answer = super().execute(operation, deadline=deadline)
        self.is_deaf = isinstance(operation, self.kind)
        if self.is_deaf:
            raise LOST
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        answers = super().execute_many(operations, deadline=deadline)
        if any(isinstance(operation, ReleaseFair) for operation in operations):
            self.released.set()
        return answers


def test_a_place_in_a_fair_queue_that_could_not_be_given_up_is_given_up_later() -> None:
    store = DeafFrom()
    lock = FairLock(store, "x", ttl=600)
    held = lock.acquire(timeout=0)
    store.kind = ReleaseFair
    with pytest.raises(LockUnreachable):
        lock.acquire(timeout=0.01)
    store.kind, store.is_deaf = type(None), False
    assert store.released.wait(SOON)
    held.release()
    assert lock.try_acquire() is not None  # which takes it only if nobody waits


@pytest.mark.parametrize("kind", [AcquireFair, op.Grant], ids=["turn", "segment"])
def test_the_turn_of_an_unanswered_fair_grant_is_released_once_the_store_answers(kind: type[object]) -> None:
    store = DeafFrom()
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=3, segments=2)
    store.kind = kind
    with pytest.raises(StoreUnavailable):
        pool.grant("a", timeout=0, fair=True)
    store.kind, store.is_deaf = type(None), False
    assert store.released.wait(SOON)
    other = pool.grant("b", timeout=SOON, fair=True)  # the segment's release may come before the turn's
    assert isinstance(other, Grant)
    other.confirm()


def test_a_repeat_with_the_callers_own_holder_id_continues_with_the_same_lease() -> None:
    store = LossyStore()
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=3, segments=1)
    store.lost = 1
    with pytest.raises(StoreUnavailable):
        pool.grant("a", timeout=0, holder_id="till")
    again = pool.grant("a", timeout=0, holder_id="till")
    assert isinstance(again, Grant)
    assert (again.replay, store.released.is_set()) == (True, False)
    again.confirm()


def test_in_a_long_outage_a_keeper_owes_a_bounded_number_of_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.keeper.OWED_MAX", 3)

    async def body() -> None:
        store = AsyncLossyStore()
        store.lost = 10**6
        for number in range(5):
            with pytest.raises(LockUnreachable):
                await AsyncLock(store, f"x{number}", ttl=600).acquire(timeout=0)
        assert len(async_keeper(store)) == 3

    asyncio.run(body())


LONG: Final = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def held(store: MemoryStore, name: str) -> LockState:
    state = operator.show(store, name)
    assert state is not None
    return state


def test_a_holder_id_names_its_host_and_process_after_22_random_characters() -> None:
    first, second = new_holder_id(), new_holder_id()
    assert re.fullmatch(rf"[\w-]{{22}}@{re.escape(HERE.process)}", first)
    assert first[:22] != second[:22]


def test_a_lock_held_for_45_s_shows_its_age_and_the_process_that_holds_it(
    store: MemoryStore, clock: ManualClock
) -> None:
    leases = [
        Lock(store, "plain", ttl=LONG).acquire(),
        ReentrantLock(store, "reentrant", ttl=LONG).acquire(),
        FairLock(store, "fair", ttl=LONG).acquire(),
        ReadWriteLock(store, "shared", ttl=LONG).write.acquire(),
    ]
    clock.advance(45)
    for name in ("plain", "reentrant", "fair", "shared"):
        state = held(store, name)
        assert (state.held_ms, state.free_in_ms) == (45_000, 15_000)
        assert [holder.process for holder in state.holders] == [HERE.process]
    assert len(leases) == 4


def test_a_holder_id_of_the_callers_own_is_cut_off_and_names_no_process(store: MemoryStore) -> None:
    store.execute(AcquireLock("plain", "secret-number-1@web:7", 60_000))
    assert held(store, "plain").holders == (LockHolder("secret-n", "exclusive", 60_000),)


def test_a_lock_of_segmented_compat_is_shown_listed_and_revoked(store: MemoryStore, clock: ManualClock) -> None:
    store.execute(AcquireLock("report", f"{'0' * 22}@web-1:7", 60_000, is_key=True))
    clock.advance(1)
    state = held(store, "report")
    assert (state.kind, state.held_ms, state.free_in_ms) == ("compat", 1_000, 59_000)
    assert state.holders == (LockHolder("00000000", "exclusive", 59_000, process="web-1:7"),)
    assert operator.list_locks(store, "rep*").names == ("report",)
    assert operator.revoke(store, "report") == Revoked("compat", state.fencing_token)
    assert (operator.show(store, "report"), operator.revoke(store, "report")) == (None, None)


def test_a_lock_of_python_redis_lock_is_shown_by_its_name_and_left_to_its_library(store: MemoryStore) -> None:
    store.execute(AcquireLock("lock:report", "MDEyMzQ1Njc4OWFiY2RlZjAx", 60_000, is_key=True))
    state = held(store, "report")
    assert (state.name, state.kind, state.holder_count) == ("report", "python-redis-lock", 1)
    for name in ("report", "lock:report"):
        with pytest.raises(WrongKind, match=r"^the key 'lock:report' is a lock of python-redis-lock: end it there"):
            operator.revoke(store, name)
    assert operator.show(store, "report") == state


def test_held_segments_of_a_pool_are_listed_and_a_free_one_is_not(store: MemoryStore) -> None:
    pool = Pool(store, "poster", ttl=LONG)
    pool.open(stock=10, segments=4)
    with pool.grant("order-1") as grant:
        found = run_sync(operator.list_plan("pos*", places=["segment"]), store).names
        assert [segment_of(key) for key in found] == [("poster", "0", grant.segment)]
        assert run_sync(operator.list_plan("mug", places=["segment"]), store).names == ()
    assert run_sync(operator.list_plan("*", places=["segment"]), store).names == ()


def test_an_operator_of_a_quorum_is_told_to_ask_each_of_its_servers() -> None:
    quorum = QuorumStore([MemoryStore() for _ in range(3)])
    with pytest.raises(InvalidInput, match=r"ask each of its servers, with a RedisStore of its own$"):
        operator.show(quorum, "report")
    quorum.close()
