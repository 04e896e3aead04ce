"""A signal handler or a finalizer may use what it interrupts: no lock of ours stops its own thread.

Python runs them between any two lines. Here a trace function does, once before each line of ours that runs.
"""

from __future__ import annotations

import json
import sys
import threading
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import segmented
from segmented import Lock, MemoryStore, Order, Pool
from segmented.compat import Lock as CompatLock
from segmented.locks import FairLock, FenceGuard, FileDeadLetters, MultiLock, Semaphore
from segmented.locks.dead_letters import Work
from segmented.stock import EnvelopePublisher

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SOON: Final = 120.0
OURS: Final = str(Path(segmented.__file__).parent)
NAMES: Final = count()


def interrupted_before_each_line(work: Callable[[], object], handler: Callable[[], object]) -> int:
    """Do the work in a thread, and run the handler before each line of ours; return at how many it has run."""
    ran: set[tuple[object, int]] = set()
    is_done = False

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401  # the type that `settrace` has
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        place = frame.f_code, frame.f_lineno
        if event == "line" and place not in ran:
            ran.add(place)
            handler()  # nothing is traced while a trace function runs
        return trace

    def run() -> None:
        nonlocal is_done
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
        is_done = True

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive(), "it waits for itself"
    assert is_done
    return len(ran)


def lock_once(kind: Any, store: Any) -> None:  # noqa: ANN401  # any lock
    name = f"name-{next(NAMES)}"
    lease = kind(store, [name] if kind is MultiLock else name, ttl=600, renew=True).acquire(timeout=SOON)
    lease.renew()
    lease.release()


def sell_once(pool: Pool) -> None:
    order_id = f"o-{next(NAMES)}"
    pool.reserve(order_id)
    pool.confirm(order_id)
    pool.reserve_many([Order(f"{order_id}-{number}") for number in range(3)])
    with pool.grant(f"{order_id}-granted"):
        pool.available()


def of_memory(kind: Any) -> Callable[[Any], Callable[[], object]]:  # noqa: ANN401  # any lock
    return lambda _: partial(lock_once, kind, MemoryStore())


def of_redis(kind: Any) -> Callable[[Any], Callable[[], object]]:  # noqa: ANN401  # any lock
    return lambda request: partial(lock_once, kind, request.getfixturevalue("store"))


def pool_in_memory(_: pytest.FixtureRequest) -> Callable[[], object]:
    pool = Pool(MemoryStore(), "mug")
    pool.open(stock=10**6, segments=4)
    return partial(sell_once, pool)


def pool_on_redis(request: pytest.FixtureRequest) -> Callable[[], object]:
    pool = Pool(request.getfixturevalue("store"), "mug")
    pool.open(stock=10**6, segments=4)
    return partial(sell_once, pool)


def compatible(request: pytest.FixtureRequest) -> Callable[[], object]:
    client = request.getfixturevalue("store").client

    def use() -> None:
        with CompatLock(client, f"key-{next(NAMES)}", timeout=600):
            pass

    return use


def fence(_: pytest.FixtureRequest) -> Callable[[], object]:
    guard, tokens = FenceGuard(), count(1)
    return lambda: guard.check(f"resource-{next(NAMES)}", token=next(tokens))


def dead_letters(request: pytest.FixtureRequest) -> Callable[[], object]:
    letters = FileDeadLetters(request.getfixturevalue("tmp_path") / "letters")

    def use() -> None:
        letters.record(Work(f"work-{next(NAMES)}", "name", "{}"))
        assert letters.newest() > 0

    return use


def publisher(_: pytest.FixtureRequest) -> Callable[[], object]:
    found = EnvelopePublisher(lambda _sku, _order_ids: None)
    return lambda: found.put("mug", [f"o-{next(NAMES)}"])


MEMBERS: Final = {
    "Lock in memory": of_memory(Lock),
    "FairLock in memory": of_memory(FairLock),
    "MultiLock in memory": of_memory(MultiLock),
    "Semaphore in memory": of_memory(partial(Semaphore, permits=10**6)),
    "Lock on Redis": of_redis(Lock),
    "a pool in memory": pool_in_memory,
    "a pool on Redis": pool_on_redis,
    "a lock of redis-py's interface": compatible,
    "FenceGuard": fence,
    "FileDeadLetters": dead_letters,
    "EnvelopePublisher": publisher,
}


@pytest.mark.parametrize("member", MEMBERS)
def test_a_handler_uses_what_it_interrupts_without_waiting_for_itself(
    request: pytest.FixtureRequest, member: str
) -> None:
    use = MEMBERS[member](request)
    assert interrupted_before_each_line(use, use) > 0


def test_no_python_code_runs_in_the_middle_of_a_script_in_memory() -> None:
    calls: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    store = MemoryStore()
    text = "return { redis.sha1hex('a'), cjson.decode(ARGV[1])[2], #cjson.decode(ARGV[1]) }"
    store.model.ask("EVAL", f"\n{text}", 0, "[]")
    arguments = ("EVAL", f"\n{text}", 0, json.dumps(["a", '\u20ac\n"\\u\t', 3]))
    sys.setprofile(profile)
    try:
        reply = store.model.ask(*arguments)
    finally:
        sys.setprofile(None)
    assert reply == [b"86f7e437faa5a7fce15d1ddcb9eaeaea377667b8", '\u20ac\n"\\u\t'.encode(), 3]
    assert [name for name in calls if "json" in name or "sha1" in name or "decode" in name] == []
