"""D: waiting, waking and giving up."""

import threading
import time
from typing import Final

from tests.conformance.locks.contender import Hold
from tests.support.contract.locks.lab import PATIENCE, Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS, Call
from tests.support.contract.locks.rows import RowFailed, must, row

SLACK: Final = 1.0
COMMANDS_MAX: Final = 250
"""Of one waiter while it is looked at: far more than a poll every 100 ms makes, far fewer than a spin."""
LOOK_SECONDS: Final = 0.25
LAG_SECONDS: Final = 0.03
NO_END: Final = -1
PROCESSES: Final = 8
TURNS: Final = 40
EACH_MAX: Final = 8
"""Commands for one acquisition and its release, far more than one process needs that waits for nobody."""
HOLD_SECONDS: Final = 0.002


@row("D1", "a release between the failed try and the subscription is not missed", needs=("listening", "wire"))
def d1_a_release_before_the_subscription(lab: Lab) -> None:
    holder, waiter = lab.caller(), lab.caller()
    hold = holder.take(lab.rival())
    lock = lab.lock(client=lab.connect_far())
    lab.proxies.hold(lab.contender.listening)
    call = waiter.start_acquire(lock)
    lab.wait_until(lab.proxies.is_holding, "the waiter never asked to be woken")
    holder.release(hold)
    lab.proxies.let_go()
    _obtained(call, 1.0 + lab.slack, "the waiter missed the release: it was not there within 1 s")


@row("D2", "when the waiter that was woken dies another one gets the lock", needs=("wire",))
def d2_a_woken_waiter_that_dies(lab: Lab) -> None:
    holder, dying, living = lab.caller(), lab.caller(), lab.caller()
    hold = holder.take(lab.rival())
    far, elsewhere = lab.connect_far(), lab.connect()
    dying.start_acquire(lab.lock(client=far))
    lab.settle(1, far)
    call = living.start_acquire(lab.lock(client=elsewhere))
    lab.settle(1, elsewhere)
    lab.proxies.hold(b"")  # it still hears that it is woken, and nothing that it says arrives
    holder.release(hold)
    _obtained(call, lab.soon, f"the lock is free, and a living waiter has not got it within {lab.soon:g} s")


@row("D3", "when a holder died its waiters wake as its lease ends", needs=("ttl",))
def d3_a_holder_that_died(lab: Lab) -> None:
    ttl = lab.contender.shortest_ttl
    lab.caller().take(lab.rival(ttl=ttl))
    call = lab.caller().start_acquire(lab.lock())
    _obtained(call, ttl + 1.5 + lab.slack, f"the lease of {ttl:g} s has ended, and its waiter still waits 1.5 s later")


@row("D4", "a wait of 1 s ends after 1 s though races are lost again and again", needs=("wire",))
def d4_lost_races(lab: Lab) -> None:
    thief, waiter, ended = lab.caller(), lab.caller(), threading.Event()
    hold = thief.take(lab.rival())
    lock, again = lab.lock(client=lab.connect_far()), lab.rival()
    lab.proxies.delay(LAG_SECONDS)

    def steal() -> None:
        held: Hold | None = hold
        while not ended.wait(0.1):
            if held is not None:
                thief.release(held)
            held = thief.try_acquire(again)

    thread = threading.Thread(target=steal, daemon=True)
    began = time.monotonic()
    call = waiter.start_acquire(lock, lab.short_wait)
    thread.start()
    try:
        _ended(call, lab.short_wait + 3 * SLACK + lab.slack)
        seconds = time.monotonic() - began
    finally:
        ended.set()
        thread.join(lab.soon)
    must(seconds <= lab.short_wait + SLACK + lab.slack, f"it came back after {seconds:.1f} s")


@row("D5", "a wait of 0 s does not wait")
def d5_no_wait(lab: Lab) -> None:
    lab.caller().take(lab.rival())
    call = lab.caller().start_acquire(lab.lock(), 0)
    _ended(call, 1.0 + lab.slack)
    must(call.exception() is not None or call.result() is None, "the lock was given twice")


@row("D9", "a waiter that loses its connection is re-armed: it neither spins nor hangs", needs=("wire",))
def d9_a_lost_connection(lab: Lab) -> None:
    holder, waiter = lab.caller(), lab.caller()
    hold = holder.take(lab.rival())
    far = lab.connect_far()
    call = waiter.start_acquire(lab.lock(client=far))
    lab.settle(1, far)
    lab.proxies.cut()
    before = lab.commands_run()
    lab.pause(LOOK_SECONDS)
    spent = lab.commands_run() - before
    must(not call.done(), f"the wait ended with its connection: {_outcome(call)}")
    must(spent <= COMMANDS_MAX * lab.contender.servers, f"it spins: {spent} commands in {LOOK_SECONDS:g} s")
    holder.release(hold)
    _obtained(call, lab.soon, f"the lock is free, and the waiter has not got it within {lab.soon:g} s")


@row("D11", "an acquire cancelled while its request is in flight leaves no lock", needs=("cancelling", "wire"))
def d11_a_cancelled_acquire(lab: Lab) -> None:
    holder = lab.caller()
    lock = lab.lock(ttl=30, client=lab.connect_far())
    lab.proxies.hold(lab.taking())
    call = holder.start_trying(lock)
    lab.wait_until(lab.proxies.is_holding, "the acquire never asked the server")
    holder.cancel()
    lab.pause(0.05)
    lab.proxies.let_go()
    must(call.exception(CALL_SECONDS) is not None, "the cancelled acquire returned")
    lab.pause(0.1)
    end = time.monotonic() + 1 + lab.slack
    while (lives := lab.key_lives_ms()) and time.monotonic() < end:
        lab.pause(0.02)
    must(not lives, f"a lock that nobody holds stays, {_how_long(lives)}")


@row("D12", "a queued waiter that gave up or died leaves its place, and the rest advance", needs=("fair",))
def d12_waiters_that_leave_the_queue(lab: Lab) -> None:
    holder, hasty, living = lab.caller(), lab.caller(), lab.caller()
    hold = holder.take(lab.rival())
    behind = 1
    given_up = hasty.start_acquire(lab.lock(), lab.short_wait if "cancelling" not in lab.contender.offers else PATIENCE)
    lab.settle(behind, unless=given_up.done)
    if "wire" in lab.contender.offers:
        far = lab.connect_far()
        lab.caller().start_acquire(lab.lock(client=far))
        lab.settle(1, far)
    call = living.start_acquire(lab.lock())
    lab.settle(behind + 1, unless=given_up.done)
    if "cancelling" in lab.contender.offers:
        hasty.cancel()
    _ended(given_up, CALL_SECONDS)
    if "wire" in lab.contender.offers:
        lab.proxies.vanish()
    holder.release(hold)
    _obtained(call, lab.soon, f"the lock is free, and the next in line has not got it within {lab.soon:g} s")


def _ended(call: Call, seconds: float) -> None:
    try:
        call.exception(seconds)
    except TimeoutError:
        raise RowFailed(f"it was still waiting after {seconds:g} s") from None


def _obtained(call: Call, seconds: float, otherwise: str) -> None:
    try:
        hold = call.result(seconds)
    except TimeoutError:
        raise RowFailed(otherwise) from None
    except Exception as error:  # any library's
        raise RowFailed(f"the waiter's acquire raised {told(error)}") from error
    must(hold is not None, "the waiter gave up early")


def _how_long(lives: list[int]) -> str:
    return "without an end" if NO_END in lives else f"for {max(lives, default=0)} ms more"


def _outcome(call: Call) -> str:
    if not call.done():
        return "it has not ended"
    error = call.exception()
    return told(error) if error else f"it returned {'a lock' if call.result() else 'without one'}"


@row(
    "D16",
    "of eight processes with a waiter each, a release has one try: it costs at most 8 commands a turn, server and name",
    needs=("wire",),
)
def d16_no_herd(lab: Lab) -> None:
    callers = [lab.caller() for _ in range(PROCESSES)]
    locks = [lab.rival(client=lab.connect()) for _ in range(PROCESSES)]
    for caller, lock in zip(callers, locks, strict=True):  # its connections are made
        caller.release(caller.take(lock))
    with lab.noting_requests() as requests:
        calls = [caller.start_acquire(lock) for caller, lock in zip(callers, locks, strict=True)]
        for turn in range(TURNS):
            lab.wait_until(lambda: any(call.done() for call in calls), "the lock is free, and nobody has got it")
            got = next(number for number, call in enumerate(calls) if call.done())
            lab.pause(HOLD_SECONDS)
            callers[got].release(calls[got].result())
            if turn < TURNS - PROCESSES:
                calls[got] = callers[got].start_acquire(locks[got])
            else:
                del calls[got], callers[got], locks[got]
    each = len(requests) / TURNS / lab.contender.servers / lab.contender.names
    must(each <= EACH_MAX, f"a turn costs {each:.1f} commands")
