"""Five pools that are broken, each in the way of a public sample, and otherwise careful."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4
from zlib import crc32

from tests.support.broken_pools.stands import LEASE_SECONDS, CarefulPool

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_SECONDS: Final = 0.002


class ZeroedRemainder(CarefulPool):
    """An order larger than its segment: the remainder is set to zero before the next segment is charged with it."""

    def take(self, start: int, quantity: int, during: Callable[[], None] | None) -> bool:
        own = self.counter(start)
        units = int(self.server.get(own) or 0)
        if units >= quantity or self.left() < quantity:
            return super().take(start, quantity, during)
        remainder = quantity - units
        self.server.set(own, 0)
        for offset in range(1, self.segments):
            following = self.counter(start + offset)
            if int(self.server.get(following) or 0) > 0:
                remainder = 0
                self.server.decrby(following, remainder)
            if remainder == 0:
                break
        return True


class RevivingResize(CarefulPool):
    """Another number of segments: what was opened is split anew, and not what is left of it."""

    def resize(self, segments: int) -> None:
        self.split(self.stock, segments)


class HashedByCustomer(CarefulPool):
    """Each customer has its segment, and is told sold out when that one is short."""

    def segment_of(self, order_id: str, customer_id: str) -> int:  # noqa: ARG002  # that is the mistake
        return crc32(customer_id.encode()) % self.segments

    def take(self, start: int, quantity: int, during: Callable[[], None] | None) -> bool:
        if during is not None:
            during()
        counter = self.counter(start)
        if self.server.decrby(counter, quantity) >= 0:
            return True
        self.server.incrby(counter, quantity)
        return False


class AbsoluteWrite(CarefulPool):
    """Reads under a lock, writes what it computed, and does not ask whether the lock is still its own."""

    def take(self, start: int, quantity: int, during: Callable[[], None] | None) -> bool:
        counter = self.counter(start)
        lock, token = f"{counter}:lock", uuid4().hex
        while not self.server.set(lock, token, nx=True, px=int(LEASE_SECONDS * 1000)):
            time.sleep(LOOK_SECONDS)
        units = int(self.server.get(counter) or 0)
        if units < quantity:
            self.server.delete(lock)
            return super().take(start, quantity, during)
        if during is not None:
            during()
        self.server.set(counter, units - quantity)
        self.server.delete(lock)
        return True


class LateDuplicateCheck(CarefulPool):
    """Takes the units first, and looks then whether the order is known."""

    def buy(self, order_id: str, quantity: int, customer_id: str, during: Callable[[], None] | None = None) -> bool:
        if not self.take(self.segment_of(order_id, customer_id), quantity, during):
            return False
        self.server.hsetnx(f"{self.name}:orders", order_id, quantity)
        return True
