"""One pool, sold from by many at once, and resized meanwhile.

What everybody was told is compared with the ledger, number by number: a refusal must be true at the sequence number
that it names. Nothing here is measured in seconds.
"""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from threading import Event
from typing import Final

from segmented import protocol as op
from segmented.models import LedgerEntry, Order, Reserved, Settled, SoldOut, Taken
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore
from tests.support.contract.parking import wait_until

DEADLINE: Final = 100.0
PAGE: Final = 1_000
UNITS: Final = {"opened": 1, "restocked": 1, "cancelled": 1, "expired": 1, "reserved": -1, "withdrawn": -1}
"""What an entry of each kind does to the free units."""


def ledger_of(pool: Pool) -> list[LedgerEntry]:
    entries: list[LedgerEntry] = []
    while found := pool.store.execute(op.ReadLedger(pool.sku, entries[-1].sequence if entries else 0, PAGE)):
        entries += found
    return entries


def free_units(entries: list[LedgerEntry]) -> dict[int, int]:
    """Return how many units were free at each sequence number."""
    free, known = 0, dict[int, int]()
    for sequence, step in groupby(entries, key=attrgetter("sequence")):
        free += sum(UNITS.get(entry.kind, 0) * entry.quantity for entry in step)
        known[sequence] = free
    return known


@dataclass(slots=True)
class Seller:
    """Takes and ends orders of one to nine units, again and again, and notes what it was told."""

    pool: Pool
    number: int
    refusals: list[SoldOut] = field(default_factory=list)
    others: list[object] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    def sell(self, stop: Event) -> None:
        """Sell until told to stop, and end what is still held then."""
        chance = random.Random(self.number)
        held: list[Callable[[], Settled]] = []
        while not stop.is_set():
            taken = self.take(chance)
            held += taken
            if held and (not taken or len(held) > 8):  # whoever is refused gives something back
                self.end(held.pop(chance.randrange(len(held))))
        for confirm_or_cancel in held:
            self.end(confirm_or_cancel)

    def take(self, chance: random.Random) -> list[Callable[[], Settled]]:
        """Ask for one order, with a segment or without; returns how it will end."""
        self.asked += 1
        order, is_sold = Order(f"{self.number}-{self.asked}", chance.randint(1, 9)), chance.random() < 0.02
        answer: Grant | Taken
        wants_segment = chance.random() < 0.3
        answer = self.pool.grant(order, timeout=DEADLINE) if wants_segment else self.pool.reserve(order)
        match answer:
            case Grant():  # ended before another is asked for: eight sellers may share one segment
                self.pool.state()
                self.end(answer.confirm if is_sold else answer.cancel)
            case Reserved():
                end = self.pool.confirm if is_sold else self.pool.cancel
                return [lambda: end(order.order_id)]
            case SoldOut():
                self.refusals.append(answer)
            case _:
                self.others.append(answer)
        return []

    def end(self, confirm_or_cancel: Callable[[], Settled]) -> None:
        """Confirm or cancel, as was decided when it was taken."""
        self.ends[confirm_or_cancel().state] += 1


def let_them_sell(pool: Pool, running: list[Future[None]]) -> None:
    """Wait until the pool has changed a hundred times more; a seller that ends before has failed."""
    before = pool.state().sequence
    wait_until(lambda: pool.state().sequence > before + 100 or any(one.done() for one in running), seconds=DEADLINE)


def test_resizing_down_up_and_down_under_load_oversells_and_refuses_nothing_wrongly(store: RedisStore) -> None:
    pool = Pool(store, "resized", ttl=600, hold=600)
    pool.open(stock=260, segments=16)
    sellers = [Seller(pool, number) for number in range(8)]
    stop = Event()
    with ThreadPoolExecutor(len(sellers)) as threads:
        running = [threads.submit(seller.sell, stop) for seller in sellers]
        try:
            for segments in (4, 33, 1, 64, 7, 16, 2, 128, 3, 16):
                let_them_sell(pool, running)
                assert pool.resize(segments).state.segment_count == segments
                assert pool.audit().is_clean
        finally:
            stop.set()
        for one in running:
            one.result(DEADLINE)
    entries = ledger_of(pool)
    free = free_units(entries)
    refusals = [refusal for seller in sellers for refusal in seller.refusals]
    assert [seller.others for seller in sellers] == [[]] * len(sellers)
    assert refusals
    for refusal in refusals:
        assert refusal.available == free[refusal.sequence] < refusal.quantity
    assert min(free.values()) >= 0
    assert [entry.kind for entry in entries].count("resized") == 10
    state, ends = pool.state(), sum((seller.ends for seller in sellers), Counter[str]())
    assert (state.reserved, state.available + state.confirmed) == (0, 260)
    assert set(ends) == {"confirmed", "cancelled"}
    assert ends.total() + len(refusals) == sum(seller.asked for seller in sellers)
    assert pool.audit().is_clean
