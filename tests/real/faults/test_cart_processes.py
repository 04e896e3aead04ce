"""Carts of real processes that are killed (-9) between any two steps, or at any moment. Rows 13 and 15 of stock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import redis

from segmented import Pool, RedisStore, protocol as op
from segmented.keys import cart_keys
from segmented.models import cart_of
from segmented.plans import run_sync
from segmented.stock import Carts
from tests.real.faults.cart_seller import SKUS, cart_that_dies
from tests.support.contract.parking import wait_until
from tests.support.pools.cart_sides import lapse_cart
from tests.support.pools.carting import reserved_and_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import Cart
    from segmented.servers import ValkeyServer

STOCK: Final = 1_000_000
STEPS: Final = {"confirm": 17, "cancel": 13}
"""Effects of a cart of three lines: as many deaths."""
HOLD_MS: Final = 600_000
"""No hold lapses by itself: `lapse` lets those of dead sellers lapse."""
SECONDS: Final = 200.0


class Sellers:
    """Pools on a server, processes that sell carts from them, and what is left."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stack = ExitStack()
        self.store = self.stack.enter_context(RedisStore.from_url(url))
        self.carts = Carts(self.store)
        for letter in SKUS:
            Pool(self.store, f"w-{letter}").open(stock=STOCK, segments=4)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", "tests.real.faults.cart_seller", self.url, "w", *arguments])
        self.stack.callback(self._end, process)
        return process

    def sequence(self) -> int:
        return sum(Pool(self.store, f"w-{letter}").state().sequence for letter in SKUS)

    def has_sold(self, sequence: int) -> bool:
        return self.sequence() >= sequence

    def lapse(self) -> None:
        """Let the holds of all carts that are not finished be over: their sellers are dead."""
        with redis.Redis.from_url(self.url, decode_responses=True) as server:
            waiting = {
                cart_id for letter in SKUS for cart_id in server.zrange(cart_keys(f"w-{letter}").unfinished, 0, -1)
            }
        for cart in self.known():
            if cart.cart_id in waiting:
                lapse_cart(self.url, cart)

    def sweep(self) -> bool:
        """Finish what is due; True when no cart is left to be finished."""
        for letter in SKUS:
            assert self.carts.finish(f"w-{letter}").failed == ()
            Pool(self.store, f"w-{letter}").expire()
        with redis.Redis.from_url(self.url) as server:
            left = sum(int(server.zcard(cart_keys(f"w-{letter}").unfinished)) for letter in SKUS)
        return left == 0

    def known(self) -> list[Cart]:
        """Return every cart that some pool keeps."""
        found: list[Cart] = []
        with redis.Redis.from_url(self.url, decode_responses=True) as server:
            for letter in SKUS:
                kept = server.hgetall(cart_keys(f"w-{letter}").carts)
                found += [cart_of(cart_id, raw.partition("\n")[2]) for cart_id, raw in kept.items()]
        return found

    def check(self) -> dict[str, int]:
        """Every cart is all or nothing, and the pools' books say the same. Returns how many carts ended how."""
        sold, ends = dict.fromkeys((f"w-{letter}" for letter in SKUS), 0), dict[str, int]()
        for cart in self.known():
            record = self.carts.read(cart.cart_id, home=cart.home)
            ends[record.state] = ends.get(record.state, 0) + 1
            assert record.is_finished
            is_sold = record.state == "confirmed"
            for sku, quantity in cart.lines:
                (line,) = self.store.execute(op.ReadOrders(sku, (cart.order_id,)))
                assert (line is not None and line.state == "confirmed") is is_sold, (record, line)
                sold[sku] += quantity if is_sold else 0
        for sku, units in sold.items():
            state = Pool(self.store, sku).state()
            assert (state.available, state.reserved, state.confirmed) == (STOCK - units, 0, units)
            assert Pool(self.store, sku).audit().is_clean
        return ends

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)


@pytest.fixture
def sellers(valkey: ValkeyServer) -> Iterator[Sellers]:
    made = Sellers(valkey.url)
    with made.stack:
        yield made


@pytest.mark.parametrize(("end", "by"), [("confirm", "sweep"), ("cancel", "repeat")])
def test_a_seller_killed_before_each_step_is_finished_by_another_process(sellers: Sellers, end: str, by: str) -> None:
    steps = range(1, STEPS[end] + 1)
    process = sellers.start("die", str(len(steps)), end, str(HOLD_MS))
    assert process.wait(SECONDS) == 0
    if by == "repeat":
        for step in steps:
            run_sync(reserved_and_ended(cart_that_dies("w", step, end), end, HOLD_MS), sellers.store)
        assert sellers.check() == {"confirmed" if end == "confirm" else "cancelled": len(steps)}
    else:
        sellers.lapse()
        wait_until(sellers.sweep, seconds=SECONDS)
        ends = sellers.check()
        assert sum(ends.values()) == len(steps) - 4  # four died before they opened their cart
        assert ends["expired"] >= 1


@pytest.mark.long
def test_sellers_killed_at_any_moment_leave_every_cart_whole(sellers: Sellers) -> None:
    for round_number in range(2):
        processes = [sellers.start("sell", f"r{round_number}-s{index}") for index in range(3)]
        for process in processes:
            enough = sellers.sequence() + 150
            wait_until(partial(sellers.has_sold, enough), seconds=SECONDS)
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(SECONDS) == -signal.SIGKILL
        sellers.lapse()
        sellers.sweep()
    wait_until(sellers.sweep, seconds=SECONDS)
    ends = sellers.check()
    assert ends["confirmed"] >= 50
    assert ends["expired"] >= 10
