"""A handle that is dropped while it holds something: a ResourceWarning, and no more renewals.

A keeper holds the leases that it renews weakly. So a lease that its program has forgotten is not renewed any more, and
its lock is free once the lease ends. It is not released at once: Python decides when a handle is finalized, and the
program may still be at the work that the lock protects. A release that was asked for before is still repeated.

No warning is given for a lease whose holder id the program has read, since another process may have adopted it, for
leases of a closed store, and by a forked child for its parent's leases. At the end of the interpreter, it is given only
if this module is still whole: Python clears modules one by one, and a handle may outlive some of them.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from segmented.locks.keeper import is_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.locks.lease_state import LeaseState


def unreleased(name: str) -> str:
    """Return the warning for a lease that was not released."""
    return f"lease on {name!r} was dropped without a release: release it, or use it in a with statement"


class WarnsWhenDropped:
    """A handle that its program must end. Its finalizer may run in any thread, at any moment: it waits for nothing."""

    def _note_dropped(self) -> str | None:
        """Note that the handle is gone; return the warning, or None if the handle has ended."""
        raise NotImplementedError

    def __del__(
        self, _warn: Callable[..., None] = warnings.warn, _is_ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        """Give a ResourceWarning if the program has not ended the handle."""
        try:
            message = self._note_dropped()
        except (AttributeError, TypeError):  # the name of a cleared module is None
            if _is_ending():
                return
            raise
        if message is not None:
            _warn(message, ResourceWarning, stacklevel=2, source=self)


class LapsesWhenDropped(WarnsWhenDropped):
    """A lease on one name or several, which is not renewed any more if the handle is dropped."""

    name: str

    def _states(self) -> Sequence[LeaseState]:
        """Return the state of each name."""
        raise NotImplementedError

    def _note_dropped(self) -> str | None:
        held = [state for state in self._states() if state.note_dropped()]
        if not held or is_closed(vars(self).get("_store")):
            return None
        return None if any(state.is_release_asked for state in self._states()) else self._unended()

    def _unended(self) -> str:
        return unreleased(self.name)
