from __future__ import annotations

import time

import pytest

from segmented.clock import ManualClock, SystemClock


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(start=5.0)
    assert (clock.now(), clock.now()) == (5.0, 5.0)
    clock.advance(2.5)
    clock.advance(0)
    assert clock.now() == 7.5


def test_a_manual_clock_does_not_go_back() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match=r"^a monotonic clock does not go back$"):
        clock.advance(-0.001)
    assert clock.now() == 1_000.0


def test_the_system_clock_only_grows_and_minds_no_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    after = clock.now()
    assert 0 <= after - before < 5


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock of that name")
def test_the_system_clock_goes_on_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = SystemClock().now()
    assert before <= found <= time.clock_gettime(time.CLOCK_BOOTTIME)
