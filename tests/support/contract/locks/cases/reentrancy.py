"""H: entering twice, by the same owner only."""

from tests.support.contract.locks.lab import Lab
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
