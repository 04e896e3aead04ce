"""One thread renews the work of all envelopes of a store, and outlives neither them nor the interpreter."""

import os
import threading
from collections import Counter

import pytest

from segmented import MemoryStore
from segmented.errors import StoreUnavailable
from segmented.orders import envelopes
from segmented.orders.envelopes import Renewal
from tests.support.contract.parking import wait_until


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "segmented-renewal"}


def test_all_envelopes_of_a_store_share_a_thread_and_each_is_renewed_in_its_interval() -> None:
    before, store, counted = threads(), MemoryStore(), Counter[str]()
    with Renewal(lambda: counted.update("s"), store, every=60):
        with (
            Renewal(lambda: counted.update("a"), store, every=0.01),
            Renewal(lambda: counted.update("b"), store, every=0.02),
        ):
            wait_until(lambda: counted["a"] >= 20 and counted["b"] >= 10)
            assert len(threads() - before) == 1
        ended = Counter(counted)
        with Renewal(lambda: counted.update("c"), store, every=0.01):
            wait_until(lambda: counted["c"] >= 10)
        assert {name: counted[name] for name in ended} == ended
    assert counted["s"] == 0


def test_a_renewal_that_fails_is_tried_again_and_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store, counted = MemoryStore(), Counter[str]()

    def fail(name: str, error: Exception) -> None:
        counted.update([name])
        raise error

    with (
        Renewal(lambda: fail("away", StoreUnavailable("the server is away")), store, every=0.01),
        Renewal(lambda: fail("wrong", ZeroDivisionError("a bug")), store, every=0.01),
        Renewal(lambda: counted.update(["good"]), store, every=0.01),
    ):
        wait_until(lambda: min(counted["away"], counted["wrong"], counted["good"]) >= 3)
    assert "the server is away" in caplog.text
    assert "a bug" in caplog.text


class Slow:
    """A renewal that goes on until it may end."""

    def __init__(self) -> None:
        """Begin nothing yet."""
        self.began, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> None:
        """Renew."""
        self.began.set()
        assert self.may_end.wait(20)
        self.ended.set()


def test_the_end_waits_for_a_renewal_in_progress() -> None:
    slow = Slow()
    with Renewal(slow, MemoryStore(), every=0.01) as renewal:
        assert slow.began.wait(20)
        renewal.every = 600  # for which the end waits at most
        threading.Timer(0.2, slow.may_end.set).start()
    assert slow.ended.is_set()


def test_the_thread_ends_when_nothing_is_left_and_the_next_envelope_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelopes, "LINGER", 0.05)
    before, store = threads(), MemoryStore()
    for _ in range(2):
        done = threading.Event()
        with Renewal(done.set, store, every=0.01):
            assert done.wait(20)
            assert len(threads() - before) == 1
        wait_until(lambda: threads() <= before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_begins_without_renewals_and_can_have_its_own() -> None:
    store, counted = MemoryStore(), Counter[str]()
    with Renewal(lambda: counted.update("p"), store, every=0.01) as parents:
        wait_until(lambda: counted["p"] > 0)
        with parents._timer._changed:  # noqa: SLF001  # the worst moment: somebody holds its lock
            child = os.fork()
            if child == 0:
                os._exit(as_child(parents, store, counted))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        seen = counted["p"]
        wait_until(lambda: counted["p"] > seen)


def as_child(parents: Renewal, store: MemoryStore, counted: Counter[str]) -> int:
    """Return 0 if the child does not renew for its parent, and renews its own work."""
    seen, done = counted["p"], threading.Event()
    with Renewal(done.set, store, every=0.01):
        if not done.wait(20):
            return 1
    parents.__exit__()
    return 2 if counted["p"] != seen else 0
