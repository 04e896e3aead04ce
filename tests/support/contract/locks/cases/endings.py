"""A and D: releases that are cancelled or cut, and waits after a listener has died."""

from typing import Final

from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS
from tests.support.contract.locks.rows import must, row

TASKS: Final = 300
CANCEL_SECONDS: Final = 0.01


@row(
    "A13",
    "of 300 tasks that are cancelled 10 ms after their release began none leaves a lock",
    needs=("cancelling", "wire"),
)
def a13_cancelled_releases(lab: Lab) -> None:
    far = lab.connect_far()
    holders = [lab.caller() for _ in range(TASKS)]
    locks = [lab.lock_of_its_own(number, ttl=60, client=far) for number in range(TASKS)]
    holds = [holder.take(lock) for holder, lock in zip(holders, locks, strict=True)]
    must(lab.locks_left(TASKS) == TASKS, "the locks are not where they are looked for")
    lab.proxies.delay(CANCEL_SECONDS / 2)
    calls = [holder.start(lab.contender.release, hold) for holder, hold in zip(holders, holds, strict=True)]
    lab.pause(CANCEL_SECONDS)
    for holder in holders:
        holder.cancel()
    for call in calls:
        call.exception(CALL_SECONDS)
    lab.proxies.delay(0)
    lab.wait_until(
        lambda: lab.locks_left(TASKS) == 0, "locks that nobody holds stay for the rest of their lease", seconds=lab.soon
    )


@row("A14", "a release whose connection is cut frees the lock within seconds", needs=("wire",))
def a14_a_release_on_a_broken_connection(lab: Lab) -> None:
    holder = lab.caller()
    hold = holder.take(lab.lock(ttl=60, client=lab.connect_far()))
    lab.proxies.hold(lab.name.encode())
    call = holder.start(lab.contender.release, hold)
    lab.wait_until(lab.proxies.is_holding, "the release never asked the server")
    lab.proxies.cut()
    lab.proxies.let_go()
    error = call.exception(CALL_SECONDS)
    said = f"the release raised {told(error)}" if error else "the release reported success"
    lab.wait_until(lab.is_open, f"{said}, and the lock stays taken", seconds=lab.soon)


@row("D17", "a contended acquire works after the connection on which its process listens has died", needs=("wire",))
def d17_a_dead_listener(lab: Lab) -> None:
    far, holder = lab.connect_far(), lab.caller()
    for _ in range(2):  # the first time it begins to listen
        hold = holder.take(lab.rival())
        waiter = lab.caller()
        call = waiter.start_acquire(lab.lock(client=far))
        lab.settle(1, far)
        holder.release(hold)
        try:
            got = call.result(lab.soon)
        except TimeoutError:
            got = None
        must(got is not None, f"the lock is free, and the waiter has not got it within {lab.soon:g} s")
        waiter.release(got)
        lab.proxies.cut()
