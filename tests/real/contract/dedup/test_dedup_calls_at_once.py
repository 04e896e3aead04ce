"""Calls with one key at the same time: one runs, the others wait for its answer or are told."""

import threading

import pytest

from segmented.dedup.web import WebOptions, all_clients
from segmented.errors import InFlight
from tests.fixtures.stores import Side
from tests.support.contract.dedup.dedup_calls import SOON, Calls, Refused, Work
from tests.support.contract.dedup.web_apps import CountingHandler, OnceApp
from tests.support.contract.parking import has_come_to_rest, wait_until


def test_sixteen_calls_at_once_are_one_run_and_the_others_wait_for_its_answer(waiting_side: Side) -> None:
    gate = threading.Event()
    calls, work = Calls(waiting_side), Work(gate)
    started = [waiting_side.start(lambda: calls.call("k", work, timeout=SOON)) for _ in range(16)]
    assert work.began.wait(SOON)
    gate.set()
    assert [one.result(SOON) for one in started] == [1] * 16
    assert work.done == 1


def test_a_call_that_has_come_to_rest_is_woken_by_the_end_of_the_run(waiting_side: Side) -> None:
    gate = threading.Event()
    calls, work = Calls(waiting_side, ttl=600), Work(gate)
    first = waiting_side.start(lambda: calls.call("k", work))
    assert work.began.wait(SOON)
    second = waiting_side.start(lambda: calls.call("k", work, timeout=None))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    gate.set()
    assert [first.result(4 * SOON), second.result(4 * SOON)] == [1, 1]
    assert work.done == 1


def test_of_calls_at_once_that_do_not_wait_one_runs_and_the_others_are_told(waiting_side: Side) -> None:
    gate = threading.Event()
    calls, work = Calls(waiting_side), Work(gate)
    first = waiting_side.start(lambda: calls.call("k", work))
    assert work.began.wait(SOON)
    for _ in range(3):
        with pytest.raises(InFlight):
            calls.call("k", work)
    gate.set()
    assert (first.result(SOON), work.done) == (1, 1)


def test_who_waits_for_a_call_that_fails_runs_itself(waiting_side: Side) -> None:
    gate = threading.Event()
    calls, work = Calls(waiting_side), Work()

    def fail() -> object:
        began.set()
        assert gate.wait(SOON)
        raise Refused

    began = threading.Event()
    first = waiting_side.start(lambda: calls.call("k", fail))
    assert began.wait(SOON)
    second = waiting_side.start(lambda: calls.call("k", work, timeout=SOON))
    gate.set()
    with pytest.raises(Refused):
        first.result(SOON)
    assert second.result(SOON) == 1


@pytest.mark.parametrize("timeout", [SOON, 0.0], ids=["waiting", "not waiting"])
def test_sixteen_requests_at_once_are_one_run(waiting_side: Side, timeout: float) -> None:
    handler = CountingHandler()
    server = OnceApp(waiting_side, handler, WebOptions(scope=all_clients, timeout=timeout))
    found = [one.result(4 * SOON) for one in [waiting_side.start(lambda: server.ask("k")) for _ in range(16)]]
    assert {got.status for got in found} <= ({201} if timeout else {201, 409})
    assert len(handler.served) == 1
