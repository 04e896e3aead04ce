"""Relays in forked processes, each of which kills itself with SIGKILL at one of its steps.

Prints a line for each step: how the process of that step ended. Step 0 is none: it prints the number of steps and rows.
"""

import os
import signal
import sys

from segmented import Pool, RedisStore
from segmented.orders import connect, relay, relaying
from tests.support.dying import DyingStore, StepCounter, let_die
from tests.support.pools.engines import gate_on

STRIDE = 3
"""Every third step, so that a page has several."""
PAGE = 3
"""So that a short ledger has several pages."""


class KillingCounter(StepCounter):
    """Ends the process as the kernel does when memory is short."""

    def count(self) -> None:
        self.counted += 1
        if self.counted == self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


def relayed(url: str, database: str, sku: str, step: int) -> str:
    """Relay, and die at this step."""
    counter = KillingCounter()
    with RedisStore.from_url(url) as store, gate_on(connect(database)) as gate:
        let_die(gate, counter)
        counter.steps = step or None
        report = relay(Pool(DyingStore(store, counter), sku), gate, trim_keep=4)
    return f"{counter.counted} {report.copied}"


def main(url: str, database: str, sku: str, first: int, last: int) -> None:
    relaying.PAGE = PAGE  # type: ignore[misc]  # a test's own size
    for step in range(first, last + 1, STRIDE):
        child = os.fork()
        if not child:
            said = relayed(url, database, sku.format(step), step)
            os.write(1, f"{said}\n".encode())
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if step:
            os.write(1, f"{code}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
