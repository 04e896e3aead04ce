"""Quorums in processes that fork, and that end while a server stands still."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from segmented.servers import ValkeyServer
from tests.fixtures.stores_quorum import Quorum, standing_still
from tests.support.contract.parking import wait_until

FORK = """
import os, sys
from segmented import RedisStore
from segmented.locks.other_servers.quorum import QuorumLock
from segmented.stores.quorum import QuorumStore

store = QuorumStore([RedisStore.from_url(url) for url in sys.argv[1:]], answer_timeout=60)
lease = QuorumLock(store, "lock").acquire(timeout=60)
child = os.fork()
if child == 0:
    is_free = QuorumLock(store, "lock").try_acquire() is not None
    QuorumLock(store, "another").acquire(timeout=60).release()
    os._exit(3 if is_free else 0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
lease.release()
store.close()
"""


def test_a_forked_child_asks_by_threads_of_its_own(start_valkey: Callable[..., ValkeyServer]) -> None:
    urls = [start_valkey().url for _ in range(3)]
    run = subprocess.run(
        [sys.executable, "-c", FORK, *urls], capture_output=True, text=True, timeout=200, check=False, cwd=Path.cwd()
    )
    assert (run.returncode, run.stderr) == (0, "")


LEAVING = """
import sys
from segmented import RedisStore
from segmented.locks.other_servers.quorum import QuorumLock
from segmented.stores.quorum import QuorumStore

with QuorumStore([RedisStore.from_url(url) for url in sys.argv[1:]], answer_timeout=60) as store:
    QuorumLock(store, "warm").acquire(timeout=60).release()
    with QuorumLock(store, "lock").acquire(timeout=60):
        print("held", flush=True)
        sys.stdin.readline()
"""


def test_a_process_that_ends_while_a_server_stands_still_does_not_hang(
    start_valkey: Callable[..., ValkeyServer], make_quorum: Callable[..., Quorum]
) -> None:
    servers = [start_valkey() for _ in range(3)]
    quorum = make_quorum("sync", [server.url for server in servers])
    with subprocess.Popen(
        [sys.executable, "-c", LEAVING, *(server.url for server in servers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        wait_until(lambda: None not in quorum.holders("lock"))
        with standing_still(servers[1]):
            process.communicate("\n", timeout=45)  # the answer timeout is a minute
        assert process.returncode == 0
    wait_until(lambda: quorum.holders("lock") == [None] * 3)
