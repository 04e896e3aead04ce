"""What this process has seen of the names on a server, so that a server that forgot some of it is noticed.

For each pool the store remembers the highest epoch with its highest sequence number, and the highest fencing token; for
each lock the highest fencing token. It sends them with every script that declares so, as the last argument. A pool that
is behind them has lost acknowledged changes, and the script freezes it. A new token exceeds them, also on a promoted
server whose clock is behind.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from segmented.errors import PoolFrozen, PoolVanished
from segmented.models.shards import Shard, no_keys_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.exceptions import ResponseError

    from segmented.protocol.wire import Call, Codec, Reply

LOGGER: Final = logging.getLogger("segmented.stock")
LOCKS_MAX: Final = 10_000
"""Locks that one store remembers, the last ones that were acquired. Every pool is remembered."""
Sight = tuple[int, int, int]
"""Epoch, sequence number and fencing token; 0 if the answer does not tell."""
NOTHING: Final[Sight] = (0, 0, 0)


class Seen:
    """The highest numbers by name, a name being the first key of a script. Thread-safe."""

    def __init__(self) -> None:
        """Create an empty memory."""
        self._pools: dict[str, Sight] = {}
        self._locks: dict[str, Sight] = {}
        self._lock = threading.Lock()
        self._reported: set[tuple[str, tuple[int, int]]] = set()
        self.on_frozen: Callable[[PoolFrozen], None] | None = None

    def added_to(self, call: Call) -> str | None:
        """Append the numbers to the call's arguments and return their name, or None for a script that takes none."""
        if call.script is None or not call.script.takes_seen:
            return None
        name = call.keys[0]
        sight = self._pools.get(name) or self._locks.get(name)
        call.arguments = (*call.arguments, "0-0-0" if sight is None else "{}-{}-{}".format(*sight))
        return name

    def learn(self, name: str | None, codec: Codec, reply: Reply, answer: object) -> None:
        """Remember what the answer to a call tells of its name."""
        if name is None:
            return
        sight = codec.sight(reply, answer) if codec.sight else _token_of(answer)
        if sight is not None:
            self.note(name, sight)

    def error(self, operation: object, refused: ResponseError) -> Exception:
        """Return our error for a script's answer that a pool has lost changes; any other error unchanged."""
        kind, *rest = str(refused).split(" ")
        sku: str = getattr(operation, "sku", "") or getattr(operation, "shard", "")
        if kind == "VANISHED" and rest:
            return no_keys_of(sku) if isinstance(sku, Shard) else PoolVanished(sku, int(rest[0]))
        if kind != "FROZEN" or len(rest) < 2:  # noqa: PLR2004  # what is there, and what was seen
            return refused
        frozen = PoolFrozen(sku, found=position(rest[0]), seen=position(rest[1]))
        self._report(frozen)
        return frozen

    def _report(self, frozen: PoolFrozen) -> None:
        """Log it and call the hook, once for each loss."""
        with self._lock:
            if (frozen.sku, frozen.seen) in self._reported:
                return
            self._reported.add((frozen.sku, frozen.seen))
        LOGGER.error("pool.frozen sku=%s found=%s seen=%s", frozen.sku, frozen.found, frozen.seen)
        if self.on_frozen is not None:
            self.on_frozen(frozen)

    def note(self, name: str, sight: Sight) -> None:
        """Remember what was seen of a name. A later epoch begins with its own sequence numbers."""
        epoch, sequence, token = sight
        with self._lock:
            if not epoch and name not in self._pools:
                self._note_lock(name, sight)
                return
            known = self._pools.get(name, NOTHING)
            if epoch < known[0]:
                epoch, sequence = known[:2]
            elif epoch == known[0]:
                sequence = max(sequence, known[1])
            self._pools[name] = (epoch, sequence, max(token, known[2]))

    def _note_lock(self, name: str, sight: Sight) -> None:
        known = self._locks.pop(name, None)
        if known is None and len(self._locks) >= LOCKS_MAX:
            del self._locks[next(iter(self._locks))]
        self._locks[name] = max(sight, known or sight)  # last, so that the one unused for longest goes first


def _token_of(answer: object) -> Sight | None:
    """Return the fencing token of an answer that has one, such as a lease's."""
    token = getattr(answer, "fencing_token", None)
    return None if token is None else (0, 0, token)


def position(text: str) -> tuple[int, int]:
    """Read an epoch and a sequence number, joined by "-"."""
    epoch, _, sequence = text.partition("-")
    return int(epoch), int(sequence)
