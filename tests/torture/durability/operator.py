"""The operator of a trial: opens the pool, has it sell again after a loss, and sells the rest at the end.

It does what docs/how-to/recover-a-pool.md says: a frozen pool is rebuilt from its order database, or thawed with the
number of orders that customers have; a pool whose keys are gone is opened again in the next epoch with the rest.
"""

import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Final, Self

from segmented.errors import PoolMissing, PoolNotFrozen, PoolVanished, SegmentedError
from segmented.models import Decided, Order, PoolState, Settled, SoldOut
from segmented.orders import Gate, connect, rebuild, reopen_gated
from segmented.orders.sale import cancel_order, expire_voided
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.torture.durability.buyer import HOLD, SEGMENTS, SKU, shop_pool, take
from tests.torture.durability.journal import Ack
from tests.torture.supervisor import AGAIN_SECONDS, connected

REST_SECONDS: Final = 30.0
"""Maximum duration of the sale of the rest."""
HELD_SECONDS: Final = HOLD + 2.0
"""Time for reserved units of killed calls to come back. On a server whose clock is behind they take longer."""


class Operator:
    """Works with stores of its own, which have not seen what the buyers have."""

    def __init__(self, url: str, database: str | None, stock: int, *, profile: str | None = None) -> None:
        """Work on the pool at `url`, opened with `profile` and decided by `database` if there is one."""
        self._stack = ExitStack()
        self._url = url
        self._database = database
        self._stock = stock
        self._profile = profile
        self._epoch = 1
        self.acks: list[Ack] = []
        """Orders that the operator sold at the end."""

    def __enter__(self) -> Self:
        """Connect to the order database."""
        self._gate = None
        if self._database is not None:
            self._gate = self._stack.enter_context(Gate(connect(self._database)))
            self._gate.create()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._stack.close()

    def open(self) -> None:
        """Open the pool."""
        with connected(self._url) as store:
            pool = shop_pool(store)
            if self._gate is None:
                pool.open(stock=self._stock, segments=SEGMENTS, profile=self._profile)
            else:
                Pool(pool.store, pool.sku, gate=self._gate).open(stock=self._stock, segments=SEGMENTS)

    def kept(self) -> set[str]:
        """Read from the ledger which orders the stock's server has as confirmed."""
        with connected(self._url) as store, suppress(PoolMissing):
            ledger = shop_pool(store).read_ledger()
            return {entry.order_id or "" for entry in ledger if entry.kind == "confirmed"}
        return set()

    def recover(self, acks: Iterable[Ack]) -> str:
        """Have the pool sell again, and return what was done. `acks` are the orders that customers have."""
        with connected(self._url) as store:
            pool = shop_pool(store)
            try:
                state = pool.state()
            except (PoolMissing, PoolVanished):
                return self._reopen(store, acks)
            if state.frozen is None:
                return "nothing"
            self._epoch = max(self._epoch, state.epoch, state.frozen[0]) + 1
            with suppress(PoolNotFrozen):
                if self._gate is not None:
                    rebuild(pool, self._gate)
                    return "rebuilt"
                pool.thaw(sold=self._sold(acks))
                return "thawed"
            return "nothing"

    def _reopen(self, store: RedisStore, acks: Iterable[Ack]) -> str:
        pool = shop_pool(store)
        self._epoch += 1
        if self._gate is not None:
            if self._gate.totals(SKU).sold >= self._stock:
                return "nothing"
            reopen_gated(pool, self._gate, segments=SEGMENTS, epoch=self._epoch)
        else:
            left = self._stock - self._sold(acks)
            if left <= 0:
                return "nothing"
            pool.open(stock=left, segments=SEGMENTS, epoch=self._epoch, profile=self._profile)
        return "reopened"

    def _sold(self, acks: Iterable[Ack]) -> int:
        """Count the orders that customers have, and those that the server still has: one may lack its answer."""
        return len({ack.order_id for ack in acks} | self.kept())

    def sell_rest(self, left: Iterable[str]) -> int:
        """Cancel the orders whose buyers gave up, sell what is free, and return how many units are still reserved."""
        with connected(self._url) as store:
            pool = shop_pool(store)
            for order_id in left:
                with suppress(SegmentedError):
                    if self._gate is None:
                        pool.cancel(order_id)
                    else:
                        cancel_order(pool, self._gate, Order(order_id))
            began = time.monotonic()
            number = 0
            while True:
                if self._gate is None:
                    pool.expire()
                else:
                    expire_voided(pool, self._gate)
                answer = take(pool, self._gate, f"rest-{number}")
                if isinstance(answer, Settled | Decided):
                    number += 1
                    if answer.state == "confirmed":
                        self.acks.append(Ack(time.monotonic(), answer.order_id, answer.quantity))
                    continue
                state: PoolState = pool.state()
                seconds = time.monotonic() - began
                is_over = state.reserved == 0 or seconds > HELD_SECONDS
                if (isinstance(answer, SoldOut) and is_over) or seconds > REST_SECONDS:
                    return state.reserved
                time.sleep(AGAIN_SECONDS)
