"""What every pool of a worker has to do; the tests of repeats and of points have a pool of threads."""

import pytest
from celery import chord

from segmented.dedup import FailedBefore, OtherPayload
from tests.support.workers.once_workers import OnceSide

SOON = 60
pytestmark = pytest.mark.long  # children of a pool are in tests/real/faults/test_dedup_ends.py


@pytest.fixture(params=["prefork", "solo"])
def side(request: pytest.FixtureRequest) -> OnceSide:
    if request.param == "prefork":
        shared: OnceSide = request.getfixturevalue("prefork_once")
        return shared
    own: OnceSide = request.getfixturevalue("once")
    own.start_ready(pool="solo")
    return own


def test_a_pool_runs_once_retries_keeps_and_replays_whatever_it_is(side: OnceSide) -> None:
    kept, gathered = side.task("kept"), side.task("gathered")
    handles = [kept.delay("pool", 1) for _ in range(3)]
    assert len(set(handles)) == 1
    assert [handle.get(timeout=SOON) for handle in handles] == [["pool", 1]] * 3
    with pytest.raises(OtherPayload):
        kept.delay("pool", 2)
    found = [side.app.send_task("kept", ("pool", 1)) for _ in range(2)]  # this one knows of no rule
    assert [one.get(timeout=SOON) for one in found] == [["pool", 1]] * 2
    with pytest.raises(ValueError, match="bad"):
        kept.delay("pool-failed", error="bad").get(timeout=SOON)
    with pytest.raises(FailedBefore, match="ValueError: bad"):
        kept.delay("pool-failed", error="bad").get(timeout=SOON)
    assert side.task("retried").delay("pool-retried", 2).get(timeout=SOON) == 2
    assert chord([kept.s("pool-chord"), kept.s("pool-chord")], gathered.s())().get(timeout=SOON) == [
        ["pool-chord", 0],
        ["pool-chord", 0],
    ]
    assert side.task("points").delay("pool-points", 5).get(timeout=SOON) == 5
    serial = [side.task("serial").delay("pool-serial", number, 0.1) for number in range(3)]
    assert [one.get(timeout=SOON) for one in serial] == [["pool-serial", number] for number in range(3)]
    counts = side.runs_by_key()
    assert {key: counts[key] for key in counts if key.startswith("pool")} == {
        "pool": 1,
        "pool-failed": 1,
        "pool-retried": 3,
        "pool-chord": 1,
        "pool-points": 1,
        "pool-serial": 3,
    }
    assert side.records.get("points:pool-points") == "5"
