"""Submitting without a server: terms that cannot be, sizes of envelopes, what a handle knows, a sweep's publisher."""

from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest

from segmented import MemoryStore, protocol as op
from segmented.errors import StoreUnavailable
from segmented.stock import Pool
from segmented.stock.outbox import Outbox


class HangingStore(MemoryStore):
    """A store that answers once and then stands still until each deadline."""

    answers = 1

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # as the store does
        if isinstance(operation, op.ReadSubmitted):
            self.answers -= 1
            if self.answers < 0:
                threading.Event().wait(deadline - self.clock.now())
                raise StoreUnavailable
        return super().execute(operation, deadline=deadline)


def test_a_handle_does_not_wait_for_a_server_that_stands_still() -> None:
    store = HangingStore()
    pool = Pool(store, "mug", outbox=Outbox())
    pool.open(stock=5, segments=1)
    handle = pool.submit("a")
    assert handle.wait(timeout=0.01) is None
    assert handle.state == "reserved"
    with pytest.raises(StoreUnavailable):
        pool.handle("a").wait(timeout=0.001)
