"""A run whose handle is dropped: a warning that names the key, no more renewals, and the key's own rule for a lapse."""

from typing import Final

import pytest

from segmented import Dedup, MemoryStore
from segmented.errors import InFlight
from tests.real.contract.locks import test_dropped_leases
from tests.support.contract.locks.late_clock import LASTS, LateClock

wakeful_keepers = test_dropped_leases.wakeful_keepers
pytestmark = pytest.mark.usefixtures("watched_drops")

SOON: Final = 30.0
DROPPED: Final = (
    r"^run under key [0-9a-f]{32} of 'orders' was dropped without an outcome, and lapses: "
    r"end it, or use it in a with statement$"
)


def test_a_dropped_run_warns_and_is_not_abandoned_since_its_effects_are_unknown() -> None:
    calls = Dedup(MemoryStore(), "orders", ttl=60)
    with pytest.warns(ResourceWarning, match=DROPPED):
        calls.begin("k")
    with pytest.raises(InFlight):
        calls.begin("k")


def test_a_dropped_run_is_not_renewed_so_that_the_next_call_runs_when_it_has_lapsed() -> None:
    clock = LateClock()
    calls = Dedup(MemoryStore(clock=clock), "orders", ttl=LASTS)
    with pytest.warns(ResourceWarning, match=DROPPED):
        calls.begin("k")
    clock.come_late()
    with calls.begin("k", timeout=SOON) as run:
        assert not run.is_replay
