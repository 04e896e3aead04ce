"""Every key and channel, built here and nowhere else.

A lock's keys share one hash tag, and so do all keys of a shard, so that each operation stays in one hash slot. Names
are percent-encoded (`%`, `{`, `}`) because the first `}` would otherwise end the tag early.
"""

from __future__ import annotations

from dataclasses import dataclass


def _encoded(name: str) -> str:
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


@dataclass(frozen=True, slots=True)
class LockKeys:
    """Keys of a named lock."""

    lock: str
    """String with PX: the holder id."""
    fence: str
    """String with PX: the last fencing token and the holder that released last; may lapse after a day idle."""
    freed: str
    """Channel: one message a release."""

    def listed(self) -> list[str]:
        """Return KEYS of every lock script."""
        return [self.lock, self.fence, self.freed]


def lock_keys(name: str) -> LockKeys:
    """Build the keys of the lock `name`."""
    tag = f"seg:lock:{{{_encoded(name)}}}"
    return LockKeys(lock=tag, fence=f"{tag}:fence", freed=f"{tag}:freed")


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Keys of one shard of a pool."""

    meta: str
    """Hash: epoch, segment count, counters, totals."""
    stock: str
    """Hash: segment -> units available."""
    free: str
    """Sorted set: segment -> server milliseconds at which it was, or will be, free. A hint; the lock decides."""
    orders: str
    """Hash: order id -> record."""
    holds: str
    """Sorted set: order id -> server milliseconds at which its hold lapses."""
    ledger: str
    """Stream: every change, under the id epoch-sequence."""
    lock: str
    """Prefix: `<lock>:<segment>` is a string with PX that holds the holder id."""
    freed: str
    """Channel: one message a freed segment."""

    def listed(self) -> list[str]:
        """Return KEYS of every pool script."""
        return [self.meta, self.stock, self.free, self.orders, self.holds, self.ledger, self.lock, self.freed]


def shard_keys(sku: str, shard: int = 0) -> ShardKeys:
    """Build the keys of one shard of the pool `sku`."""
    tag = f"seg:{{{_encoded(sku)}:{shard}}}"
    return ShardKeys(
        meta=f"{tag}:meta",
        stock=f"{tag}:stock",
        free=f"{tag}:free",
        orders=f"{tag}:orders",
        holds=f"{tag}:holds",
        ledger=f"{tag}:ledger",
        lock=f"{tag}:lock",
        freed=f"{tag}:freed",
    )


def listener_channel(listener_id: str) -> str:
    """Name the private channel on which a process wakes its own listener."""
    return f"seg:listener:{listener_id}"
