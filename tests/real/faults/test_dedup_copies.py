"""Messages that are delivered more than once: the rows F4, F7, F9, F14, F16 and F18 of the catalogue of failures.

Workers are real, and are killed or frozen at named points; what ran is counted in a file that no server knows of.
"""

import signal
from collections.abc import Callable, Iterator

import pytest

from segmented.dedup import RunLost
from tests.fixtures.once import served_once
from tests.support.workers.once_steps import Fail
from tests.support.workers.once_workers import OnceSide

SOON = 100
LONG = 600.0
"""The lease of a worker that goes on, though it may stand still for a while."""
SHORT = 1.0
"""The lease of one that dies or is frozen, which is to lapse."""
UNTIL_ENOUGH = -1
EACH_POINT = ["plain", "latest", "serial"]


@pytest.fixture(scope="module")
def steady_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnceSide]:
    with served_once(tmp_path_factory.mktemp("once"), pool="threads", concurrency=8, lease=LONG) as side:
        yield side


def test_f4_a_visibility_timeout_shorter_than_the_task_under_two_workers_is_one_run(
    make_once: Callable[..., OnceSide],
) -> None:
    once = make_once(visibility=0.6, lease=LONG)
    workers = [once.start(pool="threads", concurrency=8) for _ in range(2)]
    once.wait_for(lambda: all(worker.is_ready() for worker in workers))
    handles = [once.task(name).delay(f"f4-{name}", 1, UNTIL_ENOUGH) for name in EACH_POINT]
    once.wait_for(lambda: once.received() > len(EACH_POINT))  # so some were delivered again
    once.enough()
    assert [handle.get(timeout=SOON) for handle in handles] == [[f"f4-{name}", 1] for name in EACH_POINT]
    assert once.runs_by_key() == {f"f4-{name}": 1 for name in EACH_POINT}


def test_f7_a_worker_that_is_frozen_past_its_lease_has_its_outcome_refused(make_once: Callable[..., OnceSide]) -> None:
    once = make_once(visibility=1.0, lease=LONG)
    frozen = once.start_ready(once.changed(lease=SHORT))
    handle = once.task("kept").delay("f7", "who", UNTIL_ENOUGH)
    once.wait_for(lambda: once.runs("f7"))
    frozen.signal(signal.SIGSTOP)
    second = once.start_ready()
    once.wait_for(lambda: once.runs("f7") == 2)
    once.enough()
    assert handle.get(timeout=SOON) == ["f7", second.process.pid]
    frozen.signal(signal.SIGCONT)
    once.wait_for(lambda: "ignored" in frozen.said())
    assert (once.runs("f7"), len(once.lines(key="f7", what="end"))) == (2, 2)
    assert once.app.AsyncResult(handle.id).get(timeout=SOON) == ["f7", second.process.pid]
    assert once.task("kept").delay("f7", "who", UNTIL_ENOUGH).get(timeout=SOON) == ["f7", second.process.pid]


@pytest.mark.parametrize("name", ["retried"])
def test_f9_a_worker_killed_between_a_retry_and_its_ack_makes_no_second_chain(
    make_once: Callable[..., OnceSide], name: str
) -> None:
    """The first attempt is delivered again, before its lease has lapsed or after, when it publishes the second anew."""
    once = make_once(visibility=0.6, lease=LONG)
    dying = once.start(once.changed(fail="after_retry_publish", lease=LONG if name == "retried_long" else SHORT))
    handle = once.task(name).delay("f9", 1, "late" if name == "retried" else "raise")
    dying.died()
    second = once.start()
    assert handle.get(timeout=SOON) == 1
    once.wait_for(lambda: second.done() >= 2)  # the first attempt was delivered again
    attempts = once.lines(key="f9")
    assert (attempts[0], attempts[-1], attempts.count("1")) == ("0", "1", 1)
    assert name == "retried" or attempts == ["0", "1"]


def test_f14_a_worker_whose_clock_is_two_hours_ahead_does_not_run_what_another_is_at(
    make_once: Callable[..., OnceSide],
) -> None:
    once = make_once(
        lease=20.0
    )  # after which a message that was delivered twice comes back, by which time all is quiet
    once.start_ready()
    handle = once.task("plain").delay("f14", 1, UNTIL_ENOUGH)
    once.wait_for(lambda: once.runs("f14"))
    once.start(once.changed(clock_ahead=7200.0))
    once.wait_for(lambda: once.received() > 1)
    once.enough()
    assert handle.get(timeout=SOON) == ["f14", 1]
    once.wait_for(once.is_quiet)
    assert once.runs("f14") == 1


@pytest.mark.parametrize("name", ["plain", "points"])
def test_f16_a_store_that_lost_its_memory_keeps_a_result_and_does_no_effect(steady_once: OnceSide, name: str) -> None:
    key = f"f16-{name}"
    steady_once.enough(is_so=False)
    handle = steady_once.task(name).delay(key, 5, UNTIL_ENOUGH)
    steady_once.wait_for(lambda: steady_once.runs(key))
    steady_once.records.flushdb()
    steady_once.enough()
    if name == "points":
        with pytest.raises(RunLost):
            handle.get(timeout=SOON)
    else:  # its work is done all the same
        assert handle.get(timeout=SOON) == [key, 5]
    assert steady_once.records.get(f"points:{key}") is None
    again = steady_once.task(name).delay(key, 5, 0.0)
    assert again.get(timeout=SOON) == (5 if name == "points" else [key, 5])
    assert steady_once.runs(key) == 2
    assert steady_once.records.get(f"points:{key}") == ("5" if name == "points" else None)


@pytest.mark.parametrize(
    ("fail", "name", "result", "runs"),
    [
        ("in_body", "points", 5, 2),
        ("after_finish", "plain", ["f18", 5], 1),
    ],
)
def test_f18_a_worker_killed_before_the_acknowledgement_leaves_one_effect(
    make_once: Callable[..., OnceSide], fail: Fail, name: str, result: object, runs: int
) -> None:
    once = make_once(visibility=0.6, lease=LONG)
    dying = once.start(once.changed(fail=fail, lease=SHORT))
    handle = once.task(name).delay("f18", 5)
    dying.died()
    once.start()
    once.wait_for(lambda: once.received() and once.is_quiet())
    assert handle.get(timeout=SOON) == result
    assert once.runs("f18") == runs
    assert once.records.get("points:f18") == ("5" if name == "points" else None)
