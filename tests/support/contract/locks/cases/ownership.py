"""A: who may release what, and what a holder is told."""

from tests.conformance.locks.contender import Hold, Maybe
from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.rows import must, row


class BodyFailed(Exception):
    """What the user's own code raised."""


@row("A1", "a lease that lapsed cannot release its successor's, and its holder learns that it is lost")
def a1_a_release_after_the_end(lab: Lab) -> None:
    first, second = lab.caller(), lab.caller()
    old = first.take(lab.lock())
    lab.lapse(old)
    new = second.take(lab.rival())
    error = first.error_of_release(old)
    must(not lab.is_open(), "the successor's lock was released")
    must(error is not None, "the release of the lost lease said nothing")
    must(isinstance(error, lab.contender.lost), f"the loss was not told as one: {told(error)}" if error else "")
    must(second.error_of_release(new) is None, "the successor's own release failed")


@row("A2", "one handle shared by two tasks or threads keeps their leases apart", needs=("alone",))
def a2_a_shared_handle(lab: Lab) -> None:
    first, second = lab.caller(), lab.caller()
    lock = lab.lock()
    old = first.take(lock)
    lab.lapse(old)
    new = second.take(lock)
    first.error_of_release(old)
    must(not lab.is_open(), "the first one's release ended the second one's lease")
    error = second.error_of_release(new)
    must(error is None, f"the second one could not release: {told(error)}" if error else "")


@row("A3", "a failed try on the handle of the holder does not disturb the holder", needs=("alone",))
def a3_a_failed_try_on_the_same_handle(lab: Lab) -> None:
    holder = lab.caller()
    lock = lab.lock()
    hold = holder.take(lock)
    other = lab.caller() if "reentrant" in lab.contender.offers else holder
    must(other.try_acquire(lock) is None, "the lock was given twice")
    error = holder.error_of_release(hold)
    must(error is None, f"the holder could not release any more: {told(error)}" if error else "")
    must(lab.is_open(), "the lock stayed taken after its release")


@row("A6", "a release that failed can be called again", needs=("wire",))
def a6_a_release_after_a_failed_one(lab: Lab) -> None:
    holder = lab.caller()
    hold = holder.take(lab.lock(ttl=60, client=lab.connect_far()))
    lab.proxies.vanish()
    must(holder.error_of_release(hold) is not None, "a release without a server reported success")
    lab.proxies.come_back()
    error = holder.error_of_release(hold)
    must(error is None, f"the second release failed too, and the key stays: {told(error)}" if error else "")
    must(lab.is_open(), "the second release reported success, and the key stays")


@row("A7", "a release whose reply was lost is not reported as a lost lease", needs=("wire",))
def a7_a_release_whose_reply_was_lost(lab: Lab) -> None:
    holder = lab.caller()
    hold = holder.take(lab.lock(ttl=60, client=lab.connect_far()))
    lab.proxies.swallow_replies(1, to=lab.name.encode())
    error = holder.error_of_release(hold)
    must(lab.proxies.swallowed > 0, "the release never asked the server")
    must(not isinstance(error, lab.contender.lost), f"it had released, and said: {told(error)}" if error else "")
    must(lab.is_open(), "the lock stayed taken")


@row("A8", "the body's own error surfaces after the lease was lost", needs=("with",))
def a8_an_error_of_the_body(lab: Lab) -> None:
    def body(hold: Hold) -> Maybe:
        loss = lab.lose_inside(hold)
        if loss is None:
            raise BodyFailed
        return _fail_after(loss)

    error = lab.caller().error_of(lab.contender.run_inside, lab.lock(), body)
    must(error is not None, "the body's error vanished")
    must(isinstance(error, BodyFailed), f"the body's error is masked by another: {told(error)}" if error else "")


async def _fail_after(loss: Maybe) -> None:
    await loss
    raise BodyFailed
