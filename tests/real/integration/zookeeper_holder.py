"""A process that holds a lock: `python -m tests.real.integration.zookeeper_holder PORT NAME SESSION_SECONDS`."""

import sys

from kazoo.client import KazooClient

from segmented.locks import ZooKeeperLock


def main() -> None:
    """Acquire, say so, and answer each line with what is believed then."""
    port, name, seconds = sys.argv[1:]
    client = KazooClient(f"127.0.0.1:{port}", timeout=float(seconds))
    client.start()
    lease = ZooKeeperLock(client, name).acquire()
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"trusted={lease.is_trusted} lost={lease.is_lost}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
