"""What goes on in the body of a `with` statement under test."""

from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from segmented import protocol as op
from segmented.clock import Clock
from segmented.errors import LeaseLost
from segmented.locks import Lease
from segmented.models import Held
from tests.fixtures.stores import Side


def let_lapse(side: Side, lease: Lease) -> None:
    """End a lease on the server while its holder still trusts it, as after a long pause of the holder."""
    side.execute(op.RenewLock(lease.name, lease.holder_id, ttl_ms=1))
    side.pass_time(0.005)


def let_end_soon(lease: Lease) -> Lease:
    """Have a lease that was taken for long end soon; one taken for as short might end before its holder hears of it."""
    with suppress(LeaseLost):  # on a machine that stands still
        lease.renew(ttl=0.1)
    return lease


class Renewals:
    """Watches from outside when a plain lock's lease ends on its server."""

    def __init__(self, execute: Callable[..., object], clock: Clock, name: str) -> None:
        """Watch the lease on `name`, which somebody holds."""
        self._execute, self._clock, self._name = execute, clock, name
        self._ends = [self._end()]

    def has_two(self) -> bool:
        """Return whether it was renewed twice since the beginning."""
        end = self._end()
        if end > self._ends[-1] + 0.1:
            self._ends.append(end)
        return len(self._ends) > 2

    def _end(self) -> float:
        """Return about when it ends, on the store's clock."""
        held = self._execute(op.AcquireLock(self._name, "somebody else", 1_000))
        assert isinstance(held, Held)
        return self._clock.now() + (held.free_in_ms or 0) / 1000


class Since:
    """A moment, from which something lasts for a known time on its server."""

    def __init__(self, side: Side) -> None:
        """Begin now, before what lasts is asked for."""
        self._clock, self._at = side.clock, side.clock.now()

    def is_within(self, seconds: float) -> bool:
        """Is what lasts so many seconds certain to last still? Not on a machine that stood still."""
        return self._clock.now() < self._at + seconds


def fail_after(step: Callable[[], object]) -> NoReturn:
    """Be a body that does something and then raises."""
    step()
    raise ZeroDivisionError("the body's own error")
