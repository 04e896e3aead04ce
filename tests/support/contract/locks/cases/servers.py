"""F to J: majorities of servers, replicas, one owner twice, other servers, and a lock before a cache."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS
from tests.support.contract.locks.rows import must, row


@row("H2", "of two tasks on one thread, or two threads, the second does not enter as the first", needs=("reentrant",))
def h2_two_tasks_on_one_thread(lab: Lab) -> None:
    first, second = lab.caller(), lab.caller()
    lock = lab.lock()
    outer = first.take(lock)
    inner = first.try_acquire(lock)
    must(inner is not None, "the owner could not enter twice")
    must(second.try_acquire(lock) is None, "the second task entered the first one's lock")
    first.release(inner)
    must(second.try_acquire(lock) is None, "one release of two opened the lock")
    first.release(outer)
    must(lab.is_open(), "the lock stayed taken")


@row(
    "G1",
    "an acquire that too few replicas acknowledged is undone, and raises",
    needs=("replicas", "wire"),
)
def g1_too_few_replicas(lab: Lab) -> None:
    holder = lab.caller()
    error = holder.error_of(lab.contender.try_acquire, lab.made(lab.contender.make_replicated, 1))
    must(error is not None, "it reported a lock that no replica has")
    must(lab.is_open(), "the lock that no replica has stayed taken")


@row("G2", "a fencing token grows also after the server forgot the last one", needs=("fencing", "wire"))
def g2_a_forgotten_counter(lab: Lab) -> None:
    holder, lock = lab.caller(), lab.lock()
    tokens = []
    for forgets in (False, True, False):
        if forgets:
            lab.forget_everything()
        hold = holder.take(lock)
        tokens.append(holder.do(lab.contender.fencing_token, hold))
        holder.release(hold)
    must(tokens == sorted(set(tokens)), f"the tokens were {tokens}")


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


CALLERS: Final = 8
LOADING_SECONDS: Final = 0.15
VALUE: Final = 7


@row("J1", "a row lock is one transaction's, also through a proxy that pools by transaction", needs=("rows",))
def j1_a_pooler_in_between(lab: Lab) -> None:
    first, second = lab.caller(), lab.caller()
    for holder, other in [(first, second), (second, first)] * 5:
        hold = holder.take(lab.lock())
        must(other.try_acquire(lab.lock()) is None, "the lock was given twice")
        holder.release(hold)
        must(lab.is_open(), "the lock stayed with a session after its transaction had ended")


@row(
    "J7",
    "of 8 callers that miss a cache one loads, and not all of them when that one loses its lease",
    needs=("single flight",),
)
def j7_a_lock_before_a_cache(lab: Lab) -> None:
    loads, values = _load_together(lab, lambda: None)
    must(values == [VALUE] * CALLERS, f"the callers were given {values}")
    must(loads == 1, f"the loader ran {loads} times")
    if "wire" not in lab.contender.offers:
        return
    lab.forget_everything()
    loads, values = _load_together(lab, lab.forget_everything)
    must(values == [VALUE] * CALLERS, f"after the loss of a lease the callers were given {values}")
    must(1 <= loads <= CALLERS // 2, f"after the loss of a lease the loader ran {loads} times")


def _load_together(lab: Lab, during: Callable[[], None]) -> tuple[int, list[Any]]:
    loads: list[int] = []
    has_begun = threading.Event()

    def load() -> int:
        loads.append(1)
        has_begun.set()
        lab.pause(LOADING_SECONDS)
        return VALUE

    async def load_async() -> int:
        loads.append(1)
        has_begun.set()
        await asyncio.sleep(LOADING_SECONDS)
        return VALUE

    get = lab.made(lab.contender.guard_cache, load_async if lab.contender.is_async else load)
    calls = [lab.caller().start(get) for _ in range(CALLERS)]
    must(has_begun.wait(CALL_SECONDS), "nobody loads")
    during()
    errors = [error for call in calls if (error := call.exception(CALL_SECONDS))]
    must(not errors, f"a caller was given {told(errors[0])}" if errors else "")
    return len(loads), [call.result() for call in calls]
