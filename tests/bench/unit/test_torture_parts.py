"""The parts of a torture alone: the resource and its fence, the injector's draws, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from bench.torture.admin import called
from bench.torture.checker import check
from bench.torture.contenders import CONTENDERS
from bench.torture.options import KINDS, TortureOptions
from bench.torture.processes import Assignment, ContenderProcesses
from bench.torture.resource import AccessRequest, Resource
from bench.torture.supervisor import KILL, Fault, FaultInjector
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from bench.torture.events import Event

TTL: Final = 0.5


class Leaving:
    """A process that is gone when it is looked at for the second time."""

    stdin = None

    def __init__(self, code: int) -> None:
        self._codes = iter([None, code])

    def poll(self) -> int | None:
        return next(self._codes, 0)


@pytest.mark.parametrize(
    ("code", "crashes"), [(0, []), (4, ["process 1 ended with code 4: no output"])], ids=["in order", "failed"]
)
def test_a_process_that_was_asked_to_stop_is_looked_at_once_a_turn(
    monkeypatch: pytest.MonkeyPatch, code: int, crashes: list[str]
) -> None:
    monkeypatch.setattr("bench.torture.processes.subprocess.Popen", lambda *_, **__: Leaving(code))
    processes = ContenderProcesses(lambda _: pytest.fail("nobody listens"))
    processes.start()
    assert (processes.reap(), processes.crashes) == (False, [])
    assert (processes.reap(), processes.crashes) == (True, crashes)


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


def test_each_name_has_a_fence_of_its_own() -> None:
    resource = Resource(lambda _: None, is_fenced=True)
    assert resource.enter(asked(100), process=1, now=1.0) is not None
    assert resource.enter(asked(50, name="b"), process=1, now=1.0) is not None


def test_without_a_fence_nobody_is_refused() -> None:
    resource = Resource(lambda _: None, is_fenced=False)
    first = entered(resource, 100, 1.0)
    entered(resource, 101, 2.0)
    assert resource.write(first, trusted_until=1.5, now=2.1)


def test_a_holder_whose_connection_ends_has_left() -> None:
    resource = Resource(lambda _: None, is_fenced=True)
    resource.die(entered(resource, 100, 1.0), now=1.1)
    assert resource.processes_inside() == set()


def drawn(seed: int) -> list[Fault | None]:
    injector = FaultInjector(seed, ttl=TTL, now=0.0)
    return [injector.draw(float(step), inside={1, 2}, others={3, 4, 5}) for step in range(200)]


def test_a_seed_draws_the_same_deeds_again() -> None:
    assert drawn(7) == drawn(7) != drawn(8)


def test_every_pause_is_longer_than_the_lease_and_every_deed_is_drawn() -> None:
    faults = [fault for fault in drawn(7) if fault is not None]
    assert len(faults) == 200
    assert {fault.what for fault in faults} == {"kill", "pause", "pause_and_kill"}
    assert all(fault.seconds > TTL for fault in faults if fault.what != KILL)
    assert sum(fault.process in {1, 2} for fault in faults) > 140  # holders first, but not they alone
    assert {fault.process for fault in faults} == {1, 2, 3, 4, 5}


def test_where_nobody_is_nobody_is_tormented() -> None:
    assert FaultInjector(1, ttl=TTL, now=0.0).draw(1.0, inside=(), others=()) is None


def test_no_more_connections_are_cut_than_there_are() -> None:
    injector = FaultInjector(1, ttl=TTL, now=0.0)
    for step in range(50):
        chosen = injector.draw_cut(float(step), {11, 12})
        assert 1 <= len(chosen) <= 2
        assert set(chosen) <= {11, 12}


def test_every_kind_has_contenders() -> None:
    assert list(CONTENDERS) == list(KINDS)


def test_an_assignment_survives_its_line() -> None:
    assignment = Assignment(3, "lock", ["unix:///a?db=0"], "desk", ["a", "b"], 8, TTL, 1)
    assert Assignment.from_json(assignment.as_json()) == assignment


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0?client_name=x"),
        ("unix:///a/b.sock?db=0", "unix:///a/b.sock?db=0&client_name=x"),
    ],
)
def test_connections_are_called_by_the_name_of_the_run(url: str, expected: str) -> None:
    assert called(url, "x") == expected


def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    expected = (
        "--kind 'spin' cannot be tortured; known are: lock, reentrant, fair, read_write, semaphore, multi, quorum"
    )
    with pytest.raises(InvalidInput) as refusal:
        TortureOptions(kind="spin")
    assert str(refusal.value) == expected


@pytest.mark.parametrize("seconds", [0.9, 86_401, float("nan"), -1])
def test_seconds_that_are_no_torture_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"^--seconds .* must be between 1 and 86,400$"):
        TortureOptions(seconds=seconds)


def test_one_process_alone_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^--processes 1 must be between 2 and 64$"):
        TortureOptions(processes=1)


@pytest.mark.parametrize("threads", [0, 65])
def test_too_few_and_too_many_threads_are_refused(threads: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^--threads {threads} must be between 1 and 64$"):
        TortureOptions(threads=threads)


@pytest.mark.parametrize(
    ("kind", "url", "reason"),
    [
        ("quorum", "redis://localhost", "quorum needs 3 servers, which are embedded ones"),
        ("lock", "redis+cluster://localhost:1", "only a single server can be used"),
    ],
)
def test_a_server_that_cannot_serve_is_refused(kind: str, url: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        TortureOptions(kind=kind, url=url)
    assert str(refusal.value) == f"--url {url}: {reason}"


def test_a_log_may_be_kept() -> None:
    assert TortureOptions(log=Path("log")).log == Path("log")
