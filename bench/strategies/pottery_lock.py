"""pottery's Redlock with one master. It retries after a random pause of up to 200 ms, which is not configurable.

Every attempt and every release starts a thread for its one master; a failed attempt also sends a release. No setting
would be better here, so this is also its best configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bench.strategies.base import LEASE_SECONDS
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.library_lock import LibraryLock, needed

if TYPE_CHECKING:
    from bench.strategies.base import StrategyContext


class GlobalPottery(LibraryLock):
    """A quorum of one."""

    name: ClassVar[str] = "global-pottery"
    summary: ClassVar[str] = "one Redlock of pottery over one master: asks every 100 ms on average"

    def __init__(self, context: StrategyContext) -> None:
        """Import the library."""
        self._library = needed(self.name, "pottery")
        super().__init__(context)

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Return the lock's key."""
        return (f"redlock:{self.lock_name}",)

    def acquire(self) -> Any | None:  # noqa: ANN401  # a library without types
        """Retry until the lock is free."""
        lock = self._library.Redlock(
            key=self.lock_name, masters={self.client}, auto_release_time=LEASE_SECONDS, raise_on_redis_errors=True
        )
        return lock if lock.acquire(timeout=WAIT_SECONDS) else None
