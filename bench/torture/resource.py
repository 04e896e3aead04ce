"""The resource that the locks protect: it checks fencing tokens and logs every access. Pure: the time is passed in.

Its fence is a `FenceGuard`, which refuses a token lower than the highest it has accepted for the name. So a holder
whose lease has ended can enter and write until a successor comes, and is refused from then on. The resource never
refuses a holder without a token (`QuorumLock`), nor one whose tokens have no order (`Semaphore`): the log shows the
consequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from bench.torture.events import Died, Entered, Left, Missed, Wrote
from segmented.errors import StaleToken
from segmented.locks.checks import FenceGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.torture.events import Event


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A holder's request for access."""

    name: str
    token: int | None
    holder: str
    mode: str
    held_since: float
    trusted_until: float
    waited: float


class Resource:
    """A resource that one holder per name may change at a time."""

    def __init__(self, note: Callable[[Event], None], *, is_fenced: bool) -> None:
        """Pass every event to `note`; refuse old tokens if `is_fenced`."""
        self._note = note
        self._is_fenced = is_fenced
        self._fence = FenceGuard()
        self._inside: dict[int, tuple[AccessRequest, int]] = {}
        self._ids = count(1)

    def enter(self, asked: AccessRequest, *, process: int, now: float) -> int | None:
        """Return the number of the access, or None when it is refused."""
        is_accepted = self._is_let_through(asked)
        access = next(self._ids)
        if is_accepted:
            self._inside[access] = asked, process
        self._note(
            Entered(
                now,
                access,
                asked.name,
                asked.token,
                asked.holder,
                asked.mode,
                process,
                asked.held_since,
                asked.trusted_until,
                asked.waited,
                is_accepted,
            )
        )
        return access if is_accepted else None

    def write(self, access: int, *, trusted_until: float, now: float) -> bool:
        """Log a write, and return whether it is accepted."""
        is_accepted = self._is_let_through(self._inside[access][0])
        self._note(Wrote(now, access, trusted_until, is_accepted))
        return is_accepted

    def leave(self, access: int, *, trusted_until: float, now: float) -> bool:
        """End the access, and return whether it was still the newest."""
        is_accepted = self._is_let_through(self._inside.pop(access)[0])
        self._note(Left(now, access, trusted_until, is_accepted))
        return is_accepted

    def die(self, access: int, *, now: float) -> None:
        """End the access of a holder whose connection ended."""
        del self._inside[access]
        self._note(Died(now, access))

    def miss(self, name: str, reason: str, *, waited: float, now: float) -> None:
        """Log that a contender did not get the lock."""
        self._note(Missed(now, name, reason, waited))

    def processes_inside(self) -> set[int]:
        """Return the processes whose holders are inside now."""
        return {process for _, process in self._inside.values()}

    def _is_let_through(self, asked: AccessRequest) -> bool:
        if not self._is_fenced or asked.token is None:
            return True
        try:
            self._fence.check(asked.name, token=asked.token)
        except StaleToken:
            return False
        return True
