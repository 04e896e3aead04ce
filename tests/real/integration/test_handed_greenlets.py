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


# What was made before `gevent.monkey.patch_all()`, as with `gunicorn -k gevent --preload`, works after it.


BEFORE = """
import os, sys, time, warnings
warnings.simplefilter("ignore")  # gevent says that it patches late
from segmented import Lock, MemoryStore, Pool, RedisStore, ReentrantLock
from segmented.compat import Lock as CompatLock
from segmented.errors import SegmentedError
from segmented.locks import QuorumLock, QuorumStore
from segmented.stock import EnvelopePublisher
store = RedisStore.from_url(sys.argv[1])
"""
PATCH = """
from gevent import monkey
monkey.patch_all()
import gevent
inside, most = [], [0]

def take_turns(acquire, seconds=0.01):
    with acquire():
        inside.append(None)
        most[0] = max(most[0], len(inside))
        gevent.sleep(seconds)
        inside.pop()

def ten(acquire):
    jobs = [gevent.spawn(take_turns, acquire) for _ in range(10)]
    gevent.joinall(jobs, timeout=100)
    print(sum(job.successful() for job in jobs), "in turn," if most == [1] else "together")
"""
LOCKS = {
    "a lock whose store has served": "lock = Lock(store, 'door', ttl=600, renew=True)\nlock.acquire().release()\n",
    "a lock whose store has waited": """
lock = Lock(store, 'door', ttl=600)
with lock.acquire():
    try:
        lock.acquire(timeout=0.05)
    except SegmentedError:
        pass
""",
    "a reentrant lock": "lock = ReentrantLock(store, 'door', ttl=600)\nlock.acquire().release()\n",
    "a lock in memory": "lock = Lock(MemoryStore(), 'door', ttl=600, renew=True)\nlock.acquire().release()\n",
    "a lock of a quorum": """
lock = QuorumLock(QuorumStore([MemoryStore() for _ in range(3)], answer_timeout=30), 'door', ttl=600)
lock.acquire().release()
""",
    "a lock of redis-py's interface": "lock = CompatLock(store.client, 'door', timeout=600)\nwith lock:\n    pass\n",
    "a grant": """
pool, numbers = Pool(store, 'mug'), iter(range(100))
pool.open(stock=100, segments=1)
pool.reserve('first')
""",
}
CALLS = {"a lock of redis-py's interface": "lock", "a grant": "pool.grant(f'o-{next(numbers)}', timeout=90)"}
"""The call that takes the lock, for members that do not use `lock.acquire`."""
EACH_ALONE = """
for member, program in programs.items():
    if os.fork() == 0:
        print(member, end=": ")
        exec(program)
        break
    assert os.wait()[1] == 0
"""


def test_what_was_made_before_a_late_patch_serves_greenlets_in_turn(valkey: ValkeyServer) -> None:
    programs = {
        member: f"{before}{PATCH}ten(lambda: {CALLS.get(member, 'lock.acquire(timeout=90)')})"
        for member, before in LOCKS.items()
    }
    printed = printed_by(f"{BEFORE}programs = {programs!r}{EACH_ALONE}", valkey)
    assert printed.splitlines() == [f"{member}: 10 in turn," for member in LOCKS]


OTHERS = """
publisher = EnvelopePublisher(lambda sku, order_ids: sent.extend(order_ids))
sent = []
publisher.put("mug", ["before"])
while not sent:
    time.sleep(0.01)
held = Lock(store, "held", ttl=1, renew=True).acquire()
"""
OTHERS_AFTER = """
publisher.put("mug", ["after"])
with gevent.Timeout(100):
    while len(sent) < 2:
        gevent.sleep(0.01)
next_one = Lock(store, "next", ttl=1, renew=True).acquire()
until = next_one.trusted_until
with gevent.Timeout(100):
    while next_one.trusted_until < until + 2:
        gevent.sleep(0.01)
publisher.close()
print(sent, next_one.is_trusted)
"""


def test_what_works_in_the_background_goes_on_after_a_late_patch(valkey: ValkeyServer) -> None:
    assert printed_by(BEFORE + OTHERS + PATCH + OTHERS_AFTER, valkey) == "['before', 'after'] True\n"
