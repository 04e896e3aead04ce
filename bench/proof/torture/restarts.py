"""Restarts of a run's embedded servers: each is killed with SIGKILL, stays away for a while, and starts with its data.

The servers append every write to a file and sync it before they answer (`DURABLE`), so that no lock is lost that was
acknowledged. One server is away at a time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from segmented.servers import ValkeyServer

DURABLE: Final = {"appendfsync": "always"}
"""Directive of a server that may be restarted; it has a data folder, too."""
GAP: Final = 3.0
"""Mean seconds from the end of a restart to the next kill."""
AWAY: Final = 1.5
"""Maximum seconds from a kill to the start, in times of the lease's time to live."""


class ServerRestarts:
    """Kills servers and starts them again, in a thread of its own. As a context manager, it leaves none away."""

    def __init__(self, servers: Sequence[ValkeyServer], seed: int, *, ttl: float, now: float) -> None:
        """Plan the first kill soon after `now`, unless there are no servers to be restarted."""
        self._servers = servers
        self._random = Random(f"restarts/{seed}")
        self._ttl = ttl
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="restarts")
        self._under_way: Future[float] | None = None
        self._next_at = now + self._gap()

    def __enter__(self) -> Self:
        """Return the restarts."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until no server is away."""
        self._threads.shutdown()

    @property
    def is_idle(self) -> bool:
        """Return whether no server is away."""
        return self._under_way is None

    def step(self, now: float, *, may_kill: bool) -> float | None:
        """Begin a restart if one is due; return for how many seconds a server was away that answers again.

        Raises SegmentedError if a server cannot be killed or started.
        """
        if self._under_way is not None:
            if not self._under_way.done():
                return None
            seconds = self._under_way.result()
            self._under_way = None
            self._next_at = now + self._gap()
            return seconds
        if may_kill and self._servers and now >= self._next_at:
            server = self._random.choice(self._servers)
            self._under_way = self._threads.submit(_restart, server, self._random.uniform(0.0, AWAY * self._ttl))
        return None

    def _gap(self) -> float:
        return self._random.uniform(0.2, 1.8) * GAP


def _restart(server: ValkeyServer, seconds: float) -> float:
    """Kill a server, and start it after `seconds`; return for how long it was away."""
    began = monotonic()
    server.kill()
    sleep(seconds)
    server.restart()
    return monotonic() - began
