"""A server that stands still for a while: grants that were asked for meanwhile keep no segment afterwards."""

import os
import signal
import threading
from contextlib import suppress
from typing import Final

import redis

from segmented import Pool, RedisStore
from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from segmented.stock import Grant
from tests.real.contract.locks.test_hand_over import offers
from tests.support.contract.parking import wait_until

SKU: Final = "ticket"
PATIENCE: Final = 6.0
"""Seconds that the waiters wait: they are parked when the server is paused, and have given up when it goes on."""
SOON: Final = 120.0


def locked(server: ValkeyServer) -> int:
    """Count the segments whose lock is held, read beside the scripts."""
    with redis.Redis.from_url(server.url) as raw:
        keys = shard_keys(SKU)
        return sum(int(raw.exists(f"{keys.lock}:{segment}")) for segment in range(2))


def test_after_a_pause_no_segment_stays_locked_for_a_waiter_that_gave_up(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        pool = Pool(store, SKU, ttl=600, hold=600)
        pool.open(stock=9, segments=2)
        held = [pool.grant(f"h{number}", timeout=0) for number in range(2)]

        def wait(order_id: str) -> None:
            with suppress(SegmentedError):
                pool.grant(order_id, timeout=PATIENCE)

        def confirm(grant: object) -> None:
            assert isinstance(grant, Grant)
            with suppress(SegmentedError):
                grant.confirm()

        waiters = [threading.Thread(target=wait, args=(f"w{number}",)) for number in range(2)]
        for waiter in waiters:
            waiter.start()
        wait_until(lambda: offers(store) == 2)
        os.kill(private_valkey.pid, signal.SIGSTOP)
        enders = [threading.Thread(target=confirm, args=(grant,)) for grant in held]
        for ender in enders:
            ender.start()
        for waiter in waiters:
            waiter.join(SOON)
        os.kill(private_valkey.pid, signal.SIGCONT)
        for ender in enders:
            ender.join(SOON)
        for grant in held:
            confirm(grant)
        wait_until(lambda: locked(private_valkey) == 0)
