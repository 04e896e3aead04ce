"""Memory of what a store has seen on its server, by which a loss is noticed."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, ClassVar, Final

from segmented.errors import LayoutUnknown, PoolFrozen, PoolUnverified, PoolVanished
from segmented.models.shards import Shard, no_keys_of
from segmented.process import after_fork_in_child
from segmented.protocol.wire import position

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.exceptions import ResponseError

    from segmented.protocol.wire import Call, Codec, Reply, Sight

LOGGER: Final = logging.getLogger("segmented.stock")
LOCKS_MAX: Final = 10_000
"""Locks that one store remembers, the last ones that were acquired. Every pool is remembered."""
NOTHING: Final[Sight] = (0, 0, 0)


class Seen:
    """Memory of the names that a store has seen on its server, so that a server that forgot some of it is noticed.

    By the first key of a script: a pool's highest epoch with its highest sequence number, and the highest fencing token
    of a pool or lock. Scripts that declare so get them as the last argument, with the identity of the connection's
    server. A pool that is behind is frozen, a gated one of another server must be verified first, and a new token
    exceeds all. Thread-safe.
    """

    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        """Create an empty memory."""
        self._pools: dict[str, Sight] = {}
        self._locks: dict[str, Sight] = {}
        self._reported: set[tuple[str, tuple[int, int]]] = set()
        self.on_frozen: Callable[[PoolFrozen], None] | None = None

    def added_to(self, call: Call, server: str) -> str | None:
        """Append the numbers to the call's arguments and return their name, or None for a script that takes none."""
        if call.script is None or not call.script.takes_seen:
            return None
        name = call.keys[0]
        sight = self._pools.get(name) or self._locks.get(name)
        call.arguments = (*call.arguments, f"0-0-0-{server}" if sight is None else "{}-{}-{}-{}".format(*sight, server))
        return name

    def learn(self, name: str | None, codec: Codec, reply: Reply, answer: object) -> None:
        """Remember what the answer to a call tells of its name."""
        if name is None:
            return
        if codec.sight is not None:
            sight = codec.sight(reply, answer)
        else:
            epoch, sequence = getattr(answer, "epoch", 0), getattr(answer, "sequence", 0)
            sight = (epoch, sequence if epoch else 0, getattr(answer, "fencing_token", None) or 0)
        if sight is not None and sight != NOTHING:
            self.note(name, sight)

    def error(self, operation: object, refused: ResponseError) -> Exception:
        """Return our error for a pool that lost changes or may have, or of another release; others unchanged."""
        kind, *rest = str(refused).split(" ")
        sku: str = getattr(operation, "sku", "") or getattr(operation, "shard", "")
        if kind == "VANISHED" and rest:
            return no_keys_of(sku) if isinstance(sku, Shard) else PoolVanished(sku, int(rest[0]))
        if kind == "UNVERIFIED":
            return PoolUnverified(sku)
        if kind not in {"FROZEN", "LAYOUT"} or len(rest) < 2:  # noqa: PLR2004  # what is there, and what was seen or is known
            return refused
        if kind == "LAYOUT":
            return LayoutUnknown(sku, found=rest[0], known=rest[1])
        frozen = PoolFrozen(sku, found=position(rest[0]), seen=position(rest[1]))
        self._report(frozen)
        return frozen

    def _report(self, frozen: PoolFrozen) -> None:
        """Log it and call the hook, once for each loss."""
        with Seen.lock:
            if (frozen.sku, frozen.seen) in self._reported:
                return
            self._reported.add((frozen.sku, frozen.seen))
        LOGGER.error("pool.frozen sku=%s found=%s seen=%s", frozen.sku, frozen.found, frozen.seen)
        try:
            if self.on_frozen is not None:
                self.on_frozen(frozen)
        except Exception:
            LOGGER.exception("on_frozen failed")

    def note(self, name: str, sight: Sight) -> None:
        """Remember what was seen of a name. A later epoch begins with its own sequence numbers."""
        epoch, sequence, token = sight
        with Seen.lock:
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


def _unlock() -> None:
    """Let a forked child begin with a free lock: another thread of its parent may have had it."""
    Seen.lock = threading.Lock()


after_fork_in_child(_unlock)
