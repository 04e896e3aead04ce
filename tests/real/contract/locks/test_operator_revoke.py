"""An operator revokes locks of every kind: who waits is woken, who held is told."""

from typing import Any

import pytest

from segmented.errors import LeaseLost
from segmented.locks.lock import LockClaim
from tests.fixtures.stores import Side
from tests.real.contract.locks.test_fair_waiting import SLOW, let_times_be
from tests.support.contract.locks.kinds import HANDLES, Handles
from tests.support.contract.locks.operator_kinds import held, revoked, shown
from tests.support.contract.parking import has_come_to_rest, wait_until

SOON = 120.0
WOKEN = [kind for kind in HANDLES if "fencing" in kind.offers and kind.names == 1]


@pytest.mark.parametrize("kind", WOKEN, ids=lambda kind: kind.title)
def test_a_revoke_wakes_who_waits_and_the_old_lease_says_lost(
    redis_side: Side, kind: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but a message wakes a waiter in time, and no hand-over lapses."""
    let_times_be(SLOW, monkeypatch)
    monkeypatch.setattr("segmented.locks.read_write.PRESENCE_MS_MAX", 600_000)
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)
    side, name = redis_side, redis_side.name()

    def made(sync: Any, asynchronous: Any) -> Any:  # noqa: ANN401  # what makes locks of any kind, and one
        return side.made(lambda store: sync(store, name, ttl=600), lambda store: asynchronous(store, name, ttl=600))

    lease = made(kind.sync, kind.asyncio).acquire(timeout=SOON)
    waiter = made(kind.rival_sync or kind.sync, kind.rival_asyncio or kind.asyncio)
    waiting = side.start(lambda: waiter.acquire(timeout=600))
    wait_until(lambda: has_come_to_rest(side.store, 1))
    assert revoked(side, name) is not None
    got = waiting.result(SOON)  # far sooner than the lease's end, or a fair waiter's next look
    with pytest.raises(LeaseLost):
        lease.release()
    assert held(side, name).holder_count == 1
    got.release()
    assert shown(side, name) is None
