"""F: locks kept by a majority of servers."""

import time
from typing import Final

from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS
from tests.support.contract.locks.rows import must, row

LATE_SECONDS: Final = 0.2
CLEAN_SECONDS: Final = 4.0


@row("F1", "with one of three servers down an acquire works, and nothing is left behind", needs=("quorum", "wire"))
def f1_one_server_down(lab: Lab) -> None:
    holder = lab.caller()
    lock = lab.lock(ttl=10, client=lab.connect_far())
    lab.proxies.each[-1].vanish()
    call = holder.start_trying(lock)
    error = call.exception(CALL_SECONDS)
    must(error is None, f"the acquire raised {told(error)}, and left {len(lab.key_lives_ms())} keys" if error else "")
    must(call.result() is not None, "a free lock was not obtained")
    failure = holder.error_of_release(call.result())
    must(failure is None, f"the release raised {told(failure)}" if failure else "")
    must(not lab.key_lives_ms(), "keys are left on the servers that are up")


@row("F2", "a request that a slow server gets late does not survive the release", needs=("quorum", "wire"))
def f2_a_slow_server(lab: Lab) -> None:
    holder, slow = lab.caller(), lab.proxies.each[-1]
    lock = lab.lock(ttl=10, client=lab.connect_far())
    slow.hold_next(lab.taking())
    hold = holder.take(lock)
    must(slow.holding.wait(lab.soon), "the slow server was never asked")
    holder.release(hold)
    lab.pause(LATE_SECONDS)
    slow.let_go()
    lab.pause(LATE_SECONDS)  # what is late has arrived
    end = time.monotonic() + CLEAN_SECONDS + lab.slack
    while (lives := lab.key_lives_ms()) and time.monotonic() < end:
        lab.pause(LATE_SECONDS)
    left = max(lives, default=0)
    must(not lives, f"{CLEAN_SECONDS:g} s after the release the slow server has the lock for {left} ms more")
