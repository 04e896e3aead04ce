"""The parts of a torture alone: the resource and its fence, the injector's draws, what is refused."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented.errors import InvalidInput
from segmented.stores.memory import AsyncMemoryStore
from segmented.stores.quorum import AsyncQuorumStore
from tests.torture.judge import check
from tests.torture.locks.options import FAULTS, KILL, KINDS, PAUSE, TortureOptions
from tests.torture.locks.resource import AccessRequest, Resource
from tests.torture.locks.rounds import CLASSES, LockRequest, lock_of, tokens_of
from tests.torture.locks.run import Fault, FaultInjector
from tests.torture.locks.servers import called
from tests.torture.locks.tasks import to_the_end

if TYPE_CHECKING:
    from tests.torture.locks.resource import Event

TTL: Final = 0.5


def asked(token: int, *, name: str = "a") -> AccessRequest:
    return AccessRequest(name, token, f"holder-{token}", "exclusive", 1.0, 1.5, 0.1)


def entered(resource: Resource, token: int, now: float) -> int:
    access = resource.enter(asked(token), process=token, now=now)
    assert access is not None
    return access


def test_the_resource_refuses_a_holder_once_a_newer_token_has_come() -> None:
    log: list[Event] = []
    resource = Resource(log.append, is_fenced=True)
    first = entered(resource, 100, 1.0)
    assert resource.write(first, trusted_until=1.5, now=1.1)
    assert resource.enter(asked(99), process=9, now=1.1) is None
    second = entered(resource, 101, 2.0)
    assert not resource.write(first, trusted_until=1.5, now=2.1)
    assert resource.processes_inside() == {100, 101}
    assert not resource.leave(first, trusted_until=1.5, now=2.2)
    assert resource.leave(second, trusted_until=2.5, now=2.3)
    assert resource.processes_inside() == set()
    verdict = check(log, KINDS["lock"])
    assert (verdict.late_refused, verdict.late_accepted, verdict.acquisitions) == (3, 0, 2)


def test_without_a_fence_nobody_is_refused() -> None:
    resource = Resource(lambda _: None, is_fenced=False)
    first = entered(resource, 100, 1.0)
    entered(resource, 101, 2.0)
    assert resource.write(first, trusted_until=1.5, now=2.1)


def test_a_holder_whose_connection_ends_has_left() -> None:
    resource = Resource(lambda _: None, is_fenced=True)
    resource.die(entered(resource, 100, 1.0), now=1.1)
    assert resource.processes_inside() == set()


def drawn(seed: int, whats: tuple[str, ...] = (KILL, PAUSE)) -> list[Fault]:
    injector = FaultInjector(seed, ttl=TTL, now=0.0, whats=whats)
    found = [injector.draw(float(step), inside={1, 2}, others={3, 4, 5}) for step in range(200)]
    return [fault for fault in found if fault is not None]


def test_a_seed_draws_the_same_faults_again_and_only_those_that_were_asked_for() -> None:
    faults = drawn(7)
    assert faults == drawn(7) != drawn(8)
    assert len(faults) == 200
    assert {fault.what for fault in faults} == {"kill", "pause", "pause_and_kill"}
    assert all(fault.seconds > TTL for fault in faults if fault.what != KILL)
    assert sum(fault.process in {1, 2} for fault in faults) > 140  # holders first, but not they alone
    assert {fault.process for fault in faults} == {1, 2, 3, 4, 5}
    assert [{fault.what for fault in drawn(1, whats)} for whats in ((KILL,), (PAUSE,), ())] == [{KILL}, {PAUSE}, set()]
    assert FaultInjector(1, ttl=TTL, now=0.0).draw(1.0, inside=(), others=()) is None


def test_no_more_connections_are_cut_than_there_are() -> None:
    injector = FaultInjector(1, ttl=TTL, now=0.0)
    for step in range(50):
        chosen = injector.draw_cut(float(step), {11, 12})
        assert 1 <= len(chosen) <= 2
        assert set(chosen) <= {11, 12}


def test_every_kind_has_contenders_and_a_lock_for_tasks() -> None:
    assert list(CLASSES) == list(KINDS)
    for kind in KINDS:
        asyncio.run(_has_lock(kind))


async def _has_lock(kind: str) -> None:
    stores = [AsyncMemoryStore() for _ in range(3)]
    store = AsyncQuorumStore(stores) if kind == "quorum" else stores[0]
    request = LockRequest(["a", "b"], "a", 5.0, renew=False, timeout=1.0)
    for seed in range(5):
        lock = lock_of(kind, store, request, Random(seed), in_task=True)
        async with lock.acquire() as lease:
            tokens = tokens_of(lease)
            assert set(tokens) <= {"a", "b"}
            assert all((token is None) == (kind == "quorum") for token in tokens.values())
            assert all(asked.holder for asked in lock.requests(lease, now=1.0, asked_at=0.5))


def test_a_request_to_the_resource_is_not_cut_in_two() -> None:
    said: list[str] = []

    async def body() -> None:
        is_cancelled = asyncio.Event()

        async def ask() -> None:
            said.append("asked")
            await is_cancelled.wait()
            said.append("answered")

        task = asyncio.create_task(to_the_end(ask()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        is_cancelled.set()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(body())
    assert said == ["asked", "answered"]


def test_connections_are_called_by_the_name_of_the_run() -> None:
    for url, expected in (
        ("redis://localhost:6379/0", "redis://localhost:6379/0?client_name=x"),
        ("unix:///a/b.sock?db=0", "unix:///a/b.sock?db=0&client_name=x"),
    ):
        assert called(url, "x") == expected


ONE_SERVER: Final = {"url": "redis://localhost"}
RESTART: Final = "only an embedded server can be restarted; leave restart out of --faults"
BAD_OPTIONS: Final[list[tuple[dict[str, Any], str]]] = [
    (
        {"kind": "spin"},
        "--kind 'spin' cannot be tortured; known are: lock, reentrant, fair, read_write, semaphore, multi, quorum",
    ),
    ({"seconds": 0.9}, "--seconds 0.9 must be between 1 and 86,400"),
    ({"seconds": float("nan")}, "--seconds nan must be between 1 and 86,400"),
    ({"processes": 1}, "--processes 1 must be between 2 and 64"),
    ({"threads": 65}, "--threads 65 must be between 1 and 64"),
    ({"faults": "kill, burn"}, "--faults 'burn' is unknown; known are: kill, pause, cut, cancel, restart, or all"),
    ({"faults": "all", **ONE_SERVER}, f"--url redis://localhost: {RESTART}"),
    ({"kind": "quorum", **ONE_SERVER}, "--url redis://localhost: quorum needs 3 servers, which are embedded ones"),
    ({"url": "redis+cluster://localhost:1"}, "--url redis+cluster://localhost:1: only a single server can be used"),
]


def test_an_option_that_cannot_be_is_refused_in_one_sentence() -> None:
    for options, sentence in BAD_OPTIONS:
        with pytest.raises(InvalidInput) as refusal:
            TortureOptions(**options)
        assert str(refusal.value) == sentence


def test_all_faults_are_all_and_only_cancellations_add_tasks() -> None:
    default, everything = TortureOptions(threads=3), TortureOptions(threads=3, faults="all")
    assert [fault for fault in FAULTS if default.injects(fault)] == ["kill", "pause"]
    assert [fault for fault in FAULTS if everything.injects(fault)] == list(FAULTS)
    assert (default.tasks, everything.tasks, TortureOptions(threads=3, faults="cancel, cut").tasks) == (0, 3, 3)
