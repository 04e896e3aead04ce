"""What was made before `gevent.monkey.patch_all()`, as with `gunicorn -k gevent --preload`, works after it."""

import pytest

from segmented.servers import ValkeyServer
from tests.real.integration.test_handed_greenlets import printed_by

BEFORE = """
import sys, time, warnings
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
    "a lock whose store has served": (
        "lock = Lock(store, 'door', ttl=600, renew=True)\nlock.acquire().release()\n",
        "ten(lambda: lock.acquire(timeout=90))",
    ),
    "a lock whose store has waited": (
        """
lock = Lock(store, 'door', ttl=600)
with lock.acquire():
    try:
        lock.acquire(timeout=0.05)
    except SegmentedError:
        pass
""",
        "ten(lambda: lock.acquire(timeout=90))",
    ),
    "a reentrant lock": (
        "lock = ReentrantLock(store, 'door', ttl=600)\nlock.acquire().release()\n",
        "ten(lambda: lock.acquire(timeout=90))",
    ),
    "a lock in memory": (
        "lock = Lock(MemoryStore(), 'door', ttl=600, renew=True)\nlock.acquire().release()\n",
        "ten(lambda: lock.acquire(timeout=90))",
    ),
    "a lock of a quorum": (
        """
lock = QuorumLock(QuorumStore([MemoryStore() for _ in range(3)], answer_timeout=30), 'door', ttl=600)
lock.acquire().release()
""",
        "ten(lambda: lock.acquire(timeout=90))",
    ),
    "a lock of redis-py's interface": (
        "lock = CompatLock(store.client, 'door', timeout=600)\nlock.acquire()\nlock.release()\n",
        "ten(lambda: lock)",
    ),
    "a grant": (
        """
pool, numbers = Pool(store, 'mug'), iter(range(100))
pool.open(stock=100, segments=1)
pool.reserve('first')
""",
        "ten(lambda: pool.grant(f'o-{next(numbers)}', timeout=90))",
    ),
}


@pytest.mark.parametrize("member", LOCKS)
def test_what_was_made_before_a_late_patch_serves_greenlets_in_turn(valkey: ValkeyServer, member: str) -> None:
    before, after = LOCKS[member]
    assert printed_by(BEFORE + before + PATCH + after, valkey) == "10 in turn,\n"


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
