"""With gevent, the waiter that was handed a lock goes on before the caller that released it."""

import subprocess
import sys

from segmented.servers import ValkeyServer
from tests.support.paths import ROOT

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from segmented import Lock, RedisStore

events = []
with RedisStore.from_url(sys.argv[1]) as store:
    lock = Lock(store, "door", ttl=600)

    def wait():
        with lock.acquire(timeout=100):
            events.append("the waiter has the lock")

    first = lock.acquire(timeout=100)
    waiter = gevent.spawn(wait)
    while not any(place.offer for line in store.wakeups._lines.values() for place in line._places):
        gevent.sleep(0.01)
    first.release()
    events.append("the caller goes on")
    waiter.join()
    print(events)
"""


def printed_by(program: str, valkey: ValkeyServer) -> str:
    """Run a program with the server's address, in a process of its own, and return its output."""
    found = subprocess.run(
        [sys.executable, "-P", "-c", program, valkey.url],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        env={"PYTHONPATH": str(ROOT)},
    )
    return found.stdout


def test_a_greenlet_that_is_handed_a_lock_goes_on_before_the_one_that_released_it(valkey: ValkeyServer) -> None:
    assert printed_by(PROGRAM, valkey) == "['the waiter has the lock', 'the caller goes on']\n"


KILLED = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from segmented import Pool, RedisStore, protocol as op
from segmented.models import Order
from segmented.orders.envelopes import take_envelope

with RedisStore.from_url(sys.argv[1]) as store:
    pool = Pool(store, "ticket", ttl=600)
    pool.open(stock=9, segments=1)
    store.execute(op.QueueOrders("ticket", (Order("b", 1),), 600_000))
    first = pool.grant("a", timeout=0)
    worker = gevent.spawn(take_envelope, pool, ["b"])
    while not any(place.offer for line in store.wakeups._lines.values() for place in line._places):
        gevent.sleep(0.01)
    free = store._link.free

    def killing(*arguments, **named):
        answers = free(*arguments, **named)
        worker.kill()
        return answers

    store._link.free = killing
    first.confirm()
    taken = store.execute(op.TakeOrders("ticket", ("b",), "another worker", 600_000, 600_000, 600_000, 5))
    print(worker.dead, [type(one).__name__ for one in taken.orders])
"""


def test_a_worker_killed_while_it_is_handed_a_segment_leaves_its_order_to_another(valkey: ValkeyServer) -> None:
    assert printed_by(KILLED, valkey) == "True ['BegunOrder']\n"
