"""A holder that is suspended: `python -m tests.faults.suspended_holder URL NAME TTL`.

It acquires the lock with renewal, says so, and watches its own clock. After a gap of more than `TTL` seconds, in which
it did not run, it prints what it believes of its lease as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from segmented import Lock, RedisStore
from segmented.errors import LeaseLost

LOOKS = 1_000


def main() -> None:
    """Hold, be suspended, and tell."""
    url, name, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with RedisStore.from_url(url) as store:
        lease = Lock(store, name, ttl=ttl, renew=True).acquire(timeout=5)
        last = time.monotonic()  # before the test reads the token, and suspends this process
        print(lease.fencing_token, flush=True)  # noqa: T201  # the test reads it
        while (now := time.monotonic()) - last <= ttl:
            last = now
            time.sleep(0.001)
        trusted = sum(lease.is_trusted for _ in range(LOOKS))
        told = lease.lost.wait(5)
        try:
            lease.release()
            released = "released"
        except LeaseLost:
            released = "lost"
        print(json.dumps([trusted, told, lease.is_lost, released]), flush=True)  # noqa: T201  # as above


if __name__ == "__main__":
    main()
