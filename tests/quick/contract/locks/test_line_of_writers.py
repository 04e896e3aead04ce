"""The line of processes for the kinds of locks that are made of more than one name or mode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from segmented import RedisStore
from segmented.keys import lock_keys
from segmented.locks import MultiLock, ReadWriteLock
from segmented.models import Acquired, Held
from segmented.protocol import AcquireLock, AcquireRead, AcquireWrite, LeaveLine, ReleaseLock, ReleaseReadWrite
from tests.support.contract.parking import ScriptCount, has_come_to_rest, wait_until

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

WRITERS = 8


def test_of_eight_processes_with_a_waiting_writer_each_a_release_wakes_one(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "segmented.plans.line.AHEAD_SECONDS", 600.0
    )  # only a message wakes those that are not the first
    monkeypatch.setattr("segmented.protocol.lock.wire.LINE", "2 15 600000 600000 600000")  # nobody is late
    monkeypatch.setattr("segmented.locks.read_write.PRESENCE_MS_MAX", 600_000)  # nor has to say that it waits
    with ThreadPoolExecutor(WRITERS) as threads, ExitStack() as stack:
        stores = [stack.enter_context(RedisStore.from_url(valkey.url)) for _ in range(WRITERS + 1)]
        stores[0].execute(ReleaseReadWrite("w", "nobody"))  # the server has the script
        held = ReadWriteLock(stores[0], "w", ttl=600).write.acquire(timeout=0)
        waiting = []
        for store in stores[1:]:
            waiting.append(threads.submit(ReadWriteLock(store, "w", ttl=600).write.acquire, timeout=600))
            wait_until(lambda store=store: has_come_to_rest(store, 1))  # type: ignore[misc]  # a bound argument
        scripts = stack.enter_context(ScriptCount(stores[0].client, "w"))
        for index, writer in enumerate(waiting):
            held.release()
            held = writer.result(60)
            assert scripts() == 2 * (index + 1)
        held.release()


def test_readers_enter_while_a_line_of_writers_is_forgotten_and_its_keys_end(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        keys, client = lock_keys("w"), store.client
        store.execute(AcquireRead("w", "r1", 60_000))
        assert store.execute(AcquireWrite("w", "w1", 60_000, 1, "a")) == Held(1, ahead=0)
        assert client.pttl(keys.fence) > 0
        wait_until(lambda: isinstance(store.execute(AcquireRead("w", "r2", 60_000)), Acquired))
        assert store.execute(LeaveLine("w", "a"))
        assert (client.exists(keys.line), client.hget(keys.fence, "line")) == (0, None)


def test_a_multi_lock_that_would_wait_leaves_a_name_to_the_process_whose_turn_it_is(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.protocol.lock.wire.LINE", "2 15 0 60000 60000")  # it is its turn at once
    with RedisStore.from_url(valkey.url) as store:
        store.execute(AcquireLock("a", "holder", 60_000))
        store.execute(AcquireLock("a", "first", 60_000, party="first"))
        store.execute(ReleaseLock("a", "holder"))
        asked: list[Any] = []

        def noting(operations: Any, **options: Any) -> Any:  # noqa: ANN401  # what a batch takes and answers
            answers = type(store).execute_many(store, operations, **options)
            asked.append(answers)
            if len(asked) == 1:
                raise KeyboardInterrupt  # it need not wait, and gives all back
            return answers

        store.execute_many = noting  # type: ignore[method-assign]  # listens in
        with pytest.raises(KeyboardInterrupt):
            MultiLock(store, ["a", "b"], ttl=60).acquire(timeout=60)
        assert isinstance(asked[0][0], Held)
        assert isinstance(store.execute(AcquireLock("a", "first", 60_000, party="first")), Acquired)
        store.execute(ReleaseLock("a", "first"))
        MultiLock(store, ["a", "b"], ttl=60).acquire(timeout=0).release()
