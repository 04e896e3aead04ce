"""E: lost replies, and waits while the transport retries."""

import time
from typing import Final

from tests.conformance.locks.contender import Handle
from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS
from tests.support.contract.locks.rows import must, row

SLACK: Final = 0.75
END_SECONDS: Final = 12.0


@row("E1", "an acquire whose reply was lost succeeds with the lock it took, or takes it back", needs=("wire",))
def e1_an_acquire_whose_reply_was_lost(lab: Lab) -> None:
    holder = lab.caller()
    lock = lab.lock(client=lab.connect_far())
    lab.proxies.swallow_replies(1, to=lab.taking())
    call = holder.start_trying(lock)
    error = call.exception(CALL_SECONDS)
    must(lab.proxies.swallowed > 0, "the acquire never asked the server")
    hold = None if error else call.result()
    if hold is None:
        said = f"raised {told(error)}" if error else "said that it is held by another"
        lab.wait_until(lab.is_open, f"the acquire took the lock, {said}, and left it taken", seconds=1 + lab.slack)
        return
    failure = holder.error_of_release(hold)
    must(failure is None, f"the release of the lock it took failed: {told(failure)}" if failure else "")
    must(lab.is_open(), "the lock stayed taken after its release")


@row("E2", "a wait of 1 s ends after 1 s while the server cannot be reached, or says nothing", needs=("wire",))
def e2_a_wait_without_a_server(lab: Lab) -> None:
    lab.caller().take(lab.rival())
    lock = lab.lock(client=lab.connect_far())
    faults = []
    lab.proxies.hold(b"")
    if late := _late(lab, lock):
        faults.append(f"with a server that says nothing it {late}")
    lab.proxies.vanish()
    lab.proxies.let_go()
    if late := _late(lab, lock):
        faults.append(f"with a server that is gone it {late}")
    must(not faults, "; ".join(faults))


def _late(lab: Lab, lock: Handle) -> str:
    began = time.monotonic()
    call = lab.caller().start_acquire(lock, lab.short_wait)
    try:
        call.exception(END_SECONDS + lab.slack)
    except TimeoutError:
        return f"was still waiting after {END_SECONDS:g} s"
    seconds = time.monotonic() - began
    return f"came back after {seconds:.1f} s" if seconds > lab.short_wait + SLACK + lab.slack else ""
