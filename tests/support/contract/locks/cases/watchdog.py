"""C: renewal in the background: it ends with the release, survives a failure, and tells of a loss."""

import random
from typing import Final

from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS
from tests.support.contract.locks.rows import must, row

CYCLES: Final = 100
CYCLES_THOROUGH: Final = 10_000
CANCELLED_EVERY: Final = 10
BUSY: Final = b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n"


@row(
    "C1",
    "after 10,000 acquires, each released or cancelled at once, no lease is still renewed",
    needs=("background",),
)
def c1_a_release_at_once(lab: Lab) -> None:
    ttl = 3 * lab.contender.shortest_ttl
    holder, lock, chance = lab.caller(), lab.renewing_lock(ttl=ttl), random.Random(1)
    for index in range(CYCLES_THOROUGH if lab.is_thorough else CYCLES):
        call = holder.start_trying(lock)
        if index % CANCELLED_EVERY == 0 and "cancelling" in lab.contender.offers:
            lab.pause(chance.random() * 0.002)
            holder.cancel()
        hold = None if call.exception(CALL_SECONDS) else call.result()
        if hold is not None:
            holder.release(hold)
    lab.wait_until(lab.is_open, "a lease that nobody holds is kept alive", seconds=2 * ttl + 1 + lab.slack)


@row("C2", "a renewal that failed once is tried again while the lease lives", needs=("background", "wire"))
def c2_a_failed_renewal(lab: Lab) -> None:
    ttl = 2 * lab.contender.shortest_ttl
    holder = lab.caller()
    hold = holder.take(lab.renewing_lock(ttl=ttl, client=lab.connect_far()))
    lab.proxies.answer(BUSY, to=lab.name.encode())
    lab.wait_until(lambda: lab.proxies.answered, "no renewal was asked for", seconds=ttl + 0.5 + lab.slack)
    if lab.slack:
        lab.wait_until_renewed()
    else:
        lab.pause(ttl)
    must(not lab.is_open(lab.rival()), "after one failed renewal the lease was left to end")
    error = holder.error_of_release(hold)
    must(error is None, f"the holder could not release: {told(error)}" if error else "")


@row(
    "C3",
    "a holder whose lease was taken away learns it within one renewal period, and its handle stays usable",
    needs=("background",),
)
def c3_a_lease_that_was_taken_away(lab: Lab) -> None:
    ttl = 5 * lab.contender.shortest_ttl
    holder, lock = lab.caller(), lab.renewing_lock(ttl=ttl)
    hold = holder.take(lock)
    is_told = holder.do(lab.contender.watch_loss, hold) if "telling" in lab.contender.offers else None
    lab.take_away(hold)
    period = ttl / lab.contender.renewals_per_ttl + 0.4 + lab.slack
    if is_told is None:
        lab.pause(period)
    else:
        lab.wait_until(is_told, "the holder is not told of its loss within one renewal period", seconds=period)
    faults = [] if is_told else ["nothing tells the holder"]
    trying = holder.start_trying(lock)
    error = trying.exception(CALL_SECONDS)
    if error is not None:
        left = " and leaves the lock taken" if lab.key_lives_ms() else ""
        faults.append(f"the handle's next acquire raises {told(error)}{left}")
    elif (again := trying.result()) is not None:
        holder.error_of_release(again)  # or it is renewed for as long as the process lives
    must(not faults, "; ".join(faults))
