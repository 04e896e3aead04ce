"""The newest token of each resource, in one process."""

from __future__ import annotations

import threading

import pytest

from segmented.errors import InvalidInput, StaleToken
from segmented.locks.checks import FenceGuard


def test_a_lower_token_is_refused_once_a_higher_one_has_been_here() -> None:
    guard = FenceGuard()
    for token in (5, 5, 7):
        guard.check("file", token=token)
    with pytest.raises(StaleToken, match=r"^fencing token 6 is too old for 'file', which has seen 7$") as raised:
        guard.check("file", token=6)
    assert (raised.value.resource, raised.value.token, raised.value.newest) == ("file", 6, 7)
    assert guard.newest("file") == 7


def test_resources_are_apart_and_may_be_forgotten() -> None:
    guard = FenceGuard()
    guard.check("one", token=9)
    guard.check("another", token=1)
    assert (guard.newest("one"), guard.newest("another"), guard.newest("a third")) == (9, 1, None)
    guard.forget("one")
    guard.forget("never seen")
    guard.check("one", token=1)


def test_a_sequencer_is_checked_by_its_generation() -> None:
    guard = FenceGuard()
    assert guard.check_sequencer("v1:exclusive:file:5").name == "file"
    guard.check_sequencer("v1:exclusive:file:8")
    with pytest.raises(StaleToken):
        guard.check_sequencer("v1:exclusive:file:5")


def test_readers_do_not_overtake_each_other_and_are_overtaken_by_a_writer() -> None:
    guard = FenceGuard()
    guard.check_sequencer("v1:shared:file:6")
    guard.check_sequencer("v1:shared:file:5")
    guard.check_sequencer("v1:exclusive:file:7")
    guard.check_sequencer("v1:shared:file:8")
    guard.check_sequencer("v1:exclusive:file:7")
    with pytest.raises(StaleToken):
        guard.check_sequencer("v1:shared:file:6")


@pytest.mark.parametrize("token", [0, -1, True, 1.0, None])
def test_what_is_no_token_is_refused_and_changes_nothing(token: int) -> None:
    guard = FenceGuard()
    with pytest.raises(InvalidInput):
        guard.check("file", token=token)
    with pytest.raises(InvalidInput):
        guard.check_sequencer("v1:exclusive:file:0")
    assert guard.newest("file") is None


def test_threads_that_come_in_any_order_leave_the_highest_and_none_gets_in_after_it() -> None:
    guard, start = FenceGuard(), threading.Barrier(8)
    accepted: list[list[int]] = [[] for _ in range(8)]

    def visit(index: int) -> None:
        start.wait()
        for token in range(1 + index, 2_000, 8):
            try:
                guard.check("file", token=token)
            except StaleToken:
                continue
            accepted[index].append(token)

    threads = [threading.Thread(target=visit, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert guard.newest("file") == 1_999
    assert all(tokens == sorted(tokens) for tokens in accepted)
