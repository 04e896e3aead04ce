"""B: how long a lease lives, and by whose clock."""

from math import inf, nan
from typing import Final

from tests.support.contract.locks.lab import Caller, Lab, told
from tests.support.contract.locks.rows import must, row

NO_LEASES: Final = (0, 0.0005, -1, nan, inf, 2**63)
HALF_A_SECOND: Final = 0.5
FAR_OFF: Final = (10.0, -10.0)
LESS_THAN_FAR_OFF: Final = 8
NO_END: Final = -1


@row("B1", "of two that acquire a lock without an end exactly one wins", needs=("endless",))
def b1_a_lock_without_an_end(lab: Lab) -> None:
    holder = lab.caller()
    hold = holder.take(lab.made(lab.contender.make_endless))
    second = lab.caller().try_acquire(lab.made(lab.contender.make_endless))
    must(second is None, "both won")
    holder.release(hold)


@row(
    "B2",
    "a lease of 0, 0.0005, -1, NaN, infinite or 2^63 s is refused up front; half a second is half a second",
    needs=("ttl",),
)
def b2_a_lease_that_none_can_have(lab: Lab) -> None:
    wrong = [f"{ttl!r} {fault}" for ttl in NO_LEASES if (fault := _fault(lab, ttl))]
    if fault := _fault_of_half_a_second(lab):
        wrong.append(f"0.5 {fault}")
    must(not wrong, "; ".join(wrong))


def _fault(lab: Lab, ttl: float) -> str:
    holder = lab.caller()
    try:
        hold = holder.try_acquire(lab.lock(ttl=ttl))
    except lab.contender.refusals:
        return ""
    except Exception as error:  # noqa: BLE001  # any library's, or the server's passed through
        return f"raises {told(error)}{_left_behind(lab)}"
    if hold is None:
        return f"is neither refused nor a lock{_left_behind(lab)}"
    lives = _lives(lab)
    error_of_release = holder.error_of_release(hold)
    if NO_END in lives:
        return "makes a lock that never ends"
    return "is accepted" + (f", and its release raises {told(error_of_release)}" if error_of_release else "")


def _fault_of_half_a_second(lab: Lab) -> str:
    holder = lab.caller()
    try:
        hold = holder.try_acquire(lab.lock(ttl=HALF_A_SECOND))
    except lab.contender.refusals:
        return ""
    except Exception as error:  # noqa: BLE001  # as above
        return f"raises {told(error)}{_left_behind(lab)}"
    if hold is None:
        return "does not obtain a free lock"
    lives = _lives(lab)
    holder.error_of_release(hold)  # on a machine that stands still it has ended by now
    wrong = [life for life in lives if not 0 < life <= 500]
    return f"makes a lock that lives {wrong[0]} ms" if wrong else ""


def _left_behind(lab: Lab) -> str:
    """Say what a failure left, and remove it: the next value is tried on the same name."""
    lives = _lives(lab)
    if lives:
        lab.forget_everything()
    return " and leaves a lock that never ends" if NO_END in lives else ", and the lock is taken" if lives else ""


@row("B4", "an acquire that takes longer than the lease does not return one that has ended", needs=("wire",))
def b4_an_answer_after_the_end(lab: Lab) -> None:
    ttl = lab.contender.shortest_ttl
    holder = lab.caller()
    lock = lab.lock(ttl=ttl, client=lab.connect_far())
    lab.proxies.hold_replies(lab.taking())
    call = holder.start_trying(lock)
    lab.wait_until(lab.proxies.is_holding, "the acquire never asked the server")
    lab.pause(ttl + 0.05)
    lab.proxies.let_go()
    hold = None if call.exception(lab.soon) else call.result()
    must(hold is None, "it returned a lease that had ended")
    lab.wait_until(lambda: not lab.key_lives_ms(), "it left a lock behind")


@row("B6", "a renewal after the end fails, and never makes the lock again", needs=("renewal",))
def b6_a_renewal_after_the_end(lab: Lab) -> None:
    holder = lab.caller()
    hold = holder.take(lab.lock(ttl=60))
    lab.lapse(hold)
    must(holder.error_of_renewal(hold, 60) is not None, "a renewal of a lost lease reported success")
    must(lab.is_open(), "the renewal took the lock again")
    successor = lab.caller()
    taken = successor.take(lab.rival(ttl=10))
    must(holder.error_of_renewal(hold, 60) is not None, "a renewal reported success while a successor holds")
    must(not lab.is_open(), "the renewal ended the successor's lease")
    # A quorum takes back what a slow server granted too late, but not at once.
    lab.wait_until(lambda: max(_lives(lab), default=0) <= 10_000, "the renewal prolonged the successor's lease")
    _released(successor, taken)


@row("B10", "a client whose wall clock is 10 s off, or is stepped while it holds, changes nothing")
def b10_a_wrong_wall_clock(lab: Lab) -> None:
    for seconds in FAR_OFF:
        ours, theirs = lab.caller(), lab.caller()
        with lab.wall_clock_off_by(seconds):
            hold = ours.take(lab.lock(ttl=LESS_THAN_FAR_OFF))
        _still_alone(lab, theirs, f"taken by a clock {seconds:+g} s off")
        _released(ours, hold)
        hold = ours.take(lab.lock(ttl=LESS_THAN_FAR_OFF))
        with lab.wall_clock_off_by(seconds):
            _still_alone(lab, theirs, f"seen by a clock {seconds:+g} s off")
            if "renewal" in lab.contender.offers:
                error = ours.error_of_renewal(hold, LESS_THAN_FAR_OFF)
                must(error is None, f"a clock stepped by {seconds:+g} s spoils the renewal: {error}")
            _released(ours, hold)


def _lives(lab: Lab) -> list[int]:
    is_seen = "wire" in lab.contender.offers and lab.contender.key_lapses
    return lab.key_lives_ms() if is_seen else []


def _still_alone(lab: Lab, other: Caller, when: str) -> None:
    second = other.try_acquire(lab.rival(ttl=5))
    must(second is None, f"the lock is given twice when it is {when}")
    limit = 1_000 * LESS_THAN_FAR_OFF
    must(all(0 < life <= limit for life in _lives(lab)), f"the lease is longer when it is {when}")


def _released(holder: Caller, hold: object) -> None:
    error = holder.error_of_release(hold)
    must(error is None, f"the release failed: {told(error)}" if error else "")
