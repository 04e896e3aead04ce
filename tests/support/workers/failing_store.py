"""A store of the tests of envelopes that is away for some operations, and a pool in it."""

import threading
from math import inf
from typing import Any

from segmented import MemoryStore, Pool, protocol as op
from segmented.clock import Clock
from segmented.errors import StoreUnavailable
from segmented.models.submitted import Deciding, Submitted
from segmented.stock import Outbox

SKU = "mug"


class Failing(MemoryStore):
    """A store that is away for some operations."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.is_deaf = False
        """Is an answer lost, once?"""
        self.away: tuple[type[op.Operation[Any]], ...] = ()
        self.refused = threading.Event()
        self.renewals = 0
        """How often work was renewed."""

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # any operation's answer
        if isinstance(operation, self.away):
            self.refused.set()
            raise StoreUnavailable
        answer = super().execute(operation, deadline=deadline)
        self.renewals += isinstance(operation, op.RenewWork)
        if self.is_deaf:
            self.is_deaf = False
            raise StoreUnavailable
        return answer


def opened(store: MemoryStore, *, gated: bool = False, decides: Deciding = "at acceptance") -> Pool:
    pool = Pool(store, SKU, outbox=Outbox(decides=decides, publish_after=0.001))
    pool.open(stock=6, segments=2, gated=gated)
    return pool


def known(pool: Pool, order_id: str) -> Submitted:
    return pool.store.execute(op.ReadSubmitted(pool.sku, (order_id,)))[0]
