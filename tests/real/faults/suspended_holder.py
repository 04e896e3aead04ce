"""A holder that is suspended: `python -m tests.real.faults.suspended_holder URL NAME TTL`.

It acquires the lock with renewal, says so, and waits for a line. Suspended meanwhile for longer than `TTL` seconds, it
reads that line first of all when it goes on, and prints what it believes of its lease as a line of JSON.
"""

import json
import sys

from segmented import Lock, RedisStore
from segmented.errors import LeaseLost

LOOKS = 1_000
SECONDS = 60


def main() -> None:
    """Hold, be suspended, and tell."""
    url, name, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with RedisStore.from_url(url) as store:
        lease = Lock(store, name, ttl=ttl, renew=True).acquire(timeout=SECONDS)
        print(lease.fencing_token, flush=True)  # noqa: T201  # the test reads it
        sys.stdin.readline()
        trusted = sum(lease.is_trusted for _ in range(LOOKS))
        told = lease.lost.wait(SECONDS)
        try:
            lease.release()
            released = "released"
        except LeaseLost:
            released = "lost"
        print(json.dumps([trusted, told, lease.is_lost, released]), flush=True)  # noqa: T201  # as above


if __name__ == "__main__":
    main()
