"""All keys and channels are built here, with the patterns that find them.

A lock's keys share one hash tag, and so do all keys of a shard, and of one partition of a namespace of deduplication,
so that each operation stays in one hash slot. Names are percent-encoded (`%`, `{`, `}`) because the first `}` would
otherwise end the tag early.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args
from zlib import crc32

from segmented.errors import InvalidInput
from segmented.models.shards import SHARD_MARK

KEPT_MAX: Final = 1_024
"""Maximum number of names whose keys are cached, because each call needs them."""


def encoded(name: str) -> str:
    """Encode the characters that would end a hash tag."""
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def decoded(text: str) -> str:
    """Return what `encoded` got."""
    return text.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")


@dataclass(frozen=True, slots=True)
class LockKeys:
    """Keys of a named lock."""

    lock: str
    """String with PX: the holder id."""
    fence: str
    """Hash with PX: last `token`, last `releaser`, `delay` of the last holder; while processes wait, `line`: the turns
    of others since one of them had its turn, since when, and until when the lock is left to the first (server ms)."""
    freed: str
    """Channel: one message per release, and one when it is the turn of a waiting process."""
    line: str
    """Sorted set with PX: a waiting process -> server microseconds at which it began to wait."""

    def listed(self) -> list[str]:
        """Return KEYS of every lock script; `line` is a further one of the script that acquires."""
        return [self.lock, self.fence, self.freed]


@lru_cache(KEPT_MAX)
def lock_keys(name: str) -> LockKeys:
    """Build the keys of the lock `name`."""
    tag = f"seg:lock:{{{encoded(name)}}}"
    return LockKeys(lock=tag, fence=f"{tag}:fence", freed=f"{tag}:freed", line=f"{tag}:line")


@lru_cache(KEPT_MAX)
def named_lock_keys(key: str) -> LockKeys:
    """Build the keys of a lock whose main key is `key` itself, as for redis-py's lock.

    All are in one hash slot, unless the key has braces that are not a hash tag: such a key works on one server only.
    """
    base = key if "{" in key or "}" in key else f"{{{key}}}"
    return LockKeys(lock=key, fence=f"{base}:seg:fence", freed=f"{base}:seg:freed", line=f"{base}:seg:line")


class ReadWriteKeys(NamedTuple):
    """Keys of a read-write lock."""

    lock: str
    """Hash with PX while the lock is held: `mode` (read or write), `token`, and the `holder` of a writer."""
    fence: str
    """Hash with PX: last `token`, `kind`."""
    readers: str
    """Sorted set with PX: holder id of a reader -> server milliseconds at which its lease ends."""
    writers: str
    """Sorted set with PX: holder id of a waiting writer -> server milliseconds until which it blocks new readers."""
    freed: str
    """Channel for writers: one message when a writer may enter."""
    opened: str
    """Channel for readers: one message when readers may enter."""


def read_write_keys(name: str) -> ReadWriteKeys:
    """Build the keys of the read-write lock `name`."""
    keys = lock_keys(name)
    return ReadWriteKeys(
        lock=keys.lock,
        fence=keys.fence,
        readers=f"{keys.lock}:readers",
        writers=f"{keys.lock}:writers",
        freed=keys.freed,
        opened=f"{keys.lock}:opened",
    )


class ReentrantKeys(NamedTuple):
    """Keys of a reentrant lock."""

    lock: str
    """Hash with PX: `owner:` and the owner -> how often it has entered."""
    fence: str
    """Hash with PX: last `token`, `kind`; `line` as for a plain lock."""
    freed: str
    """Channel: one message when the last entry is released."""
    entries: str
    """Set with PX: the holder ids of the leases in the count."""


def reentrant_keys(name: str) -> ReentrantKeys:
    """Build the keys of the reentrant lock `name`."""
    keys = lock_keys(name)
    return ReentrantKeys(lock=keys.lock, fence=keys.fence, freed=keys.freed, entries=f"{keys.lock}:entries")


class FairKeys(NamedTuple):
    """Keys of a fair lock."""

    lock: str
    """String with PX: the holder id."""
    fence: str
    """Hash with PX: last `token`, `kind`, number of `arrivals`; `process` of the holder; the waiter that was last
    `handed` the lock, and the last `minder`, which watches for the holder's end."""
    freed: str
    """Channel: one message when a release finds no waiter to hand the lock to."""
    queue: str
    """Sorted set with PX: holder id of a waiter -> its arrival number."""
    waiters: str
    """Hash with PX: holder id -> its arrival number, its process, and `+` once its subscription was seen."""
    present: str
    """Sorted set with PX: holder id -> server milliseconds until which it counts as alive."""
    turn: str
    """Prefix: `<turn>:<holder id>` is one waiter's channel: one message when it is its turn, or becomes the minder."""

    def turn_of(self, holder_id: str) -> str:
        """Return the channel of one waiter."""
        return f"{self.turn}:{holder_id}"


def fair_keys(name: str) -> FairKeys:
    """Build the keys of the fair lock `name`."""
    keys = lock_keys(name)
    return FairKeys(
        lock=keys.lock,
        fence=keys.fence,
        freed=keys.freed,
        queue=f"{keys.lock}:queue",
        waiters=f"{keys.lock}:waiters",
        present=f"{keys.lock}:present",
        turn=f"{keys.lock}:turn",
    )


def operator_keys(name: str) -> list[str]:
    """Build KEYS of the operator scripts, which do not know the kind: those that a lock of any kind may have."""
    shared, fair = read_write_keys(name), fair_keys(name)
    companions = [shared.readers, shared.writers, shared.opened, reentrant_keys(name).entries]
    return [*lock_keys(name).listed(), *companions, fair.queue, fair.waiters, fair.present, fair.turn]


def named_operator_keys(key: str) -> list[str]:
    """Build KEYS of the operator scripts for a lock whose main key is `key`: it has no companions of other kinds."""
    keys = named_lock_keys(key).listed()
    return [*keys, *keys[-1:] * (len(operator_keys(key)) - len(keys))]


def lock_pattern(match: str) -> str:
    """Build the pattern of the main keys of locks whose names match; companion keys have other endings."""
    return lock_keys(match).lock


def named_lock_pattern(match: str) -> str:
    """Build the pattern of the fences of locks whose main key is the name, as those of `segmented.compat`."""
    return f"{{{match}}}:seg:fence"


def named_lock(fence: str) -> str:
    """Return the name of the lock whose fence this is."""
    return fence[1:].removesuffix("}:seg:fence")


def segment_pattern(match: str) -> str:
    """Build the pattern of the keys of held segments of pools whose skus match."""
    return f"seg:{{{encoded(match)}:*}}:lock:*"


def segment_of(key: str) -> tuple[str, str, int] | None:
    """Return the sku, the shard and the segment of a held segment's key, or None for any other key."""
    found = re.fullmatch(r"seg:\{(.*):([^:]+)\}:lock:(\d+)", key)
    return found and (decoded(found[1]), found[2], int(found[3]))


def lock_name(key: str) -> str | None:
    """Return the name of the lock whose main key this is, or None for any other key."""
    prefix, suffix = lock_keys("\n").lock.split("\n")
    if not (key.startswith(prefix) and key.endswith(suffix)):
        return None
    return decoded(key[len(prefix) : -len(suffix)])


class FencedKeys(NamedTuple):
    """Keys of a value that is written with fencing tokens. The value's key is the user's own."""

    value: str
    """String: the value."""
    fence: str
    """String that never expires: the highest token that has written; delete it only with the value."""


def fenced_keys(key: str) -> FencedKeys:
    """Build the keys of a value, both in one hash slot. Raises InvalidInput for a key that makes this impossible."""
    before, opened, rest = key.partition("{")
    tag, closed, after = rest.partition("}")
    if opened and closed and tag and (before or after) and not key.endswith(":fence"):
        return FencedKeys(key, f"{key}:fence")
    if not key or opened or "}" in before:
        message = f"key {key!r} is empty, has braces that are not a hash tag beside other text, or ends as a fence"
        raise InvalidInput(message)
    return FencedKeys(key, f"{{{key}}}:fence")


def polling_channel(name: str) -> str:
    """Return the name of the queue of waiters that poll for a lock: no message is published there."""
    return f"{lock_keys(name).lock}:polled"


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """Keys of a cached value: those of the lock of its name, and of the value."""

    locking: LockKeys
    """The hash `fence` has an additional field: `kept`, the lowest token that may still write."""
    cached: str
    """Hash with PX: `kind`, `body`, and `refresh_at` in server milliseconds if it is refreshed ahead."""

    def listed(self) -> list[str]:
        """Return KEYS of every cache script."""
        return [*self.locking.listed(), self.cached]


def cache_keys(name: str) -> CacheKeys:
    """Build the keys of the cached value `name`."""
    keys = lock_keys(name)
    return CacheKeys(locking=keys, cached=f"{keys.lock}:cached")


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Keys of one shard of a pool."""

    meta: str
    """Hash: epoch, segment count, counters, totals."""
    stock: str
    """Hash: segment -> units available."""
    free: str
    """Sorted set: segment -> server milliseconds at which it was, or will be, free. Only a hint; the lock decides."""
    orders: str
    """Hash: order id -> record."""
    holds: str
    """Sorted set: order id -> server milliseconds at which its hold expires.

    `<holds>:<call>` is a string with PX: the sequence number at which that call of `expire` gave holds back.
    """
    ledger: str
    """Stream: every change, under the id epoch-sequence."""
    lock: str
    """Prefix: `<lock>:<segment>` is a string with PX that holds the holder id."""
    freed: str
    """Channel: one message per freed segment, and one when it is the turn of a waiting process."""
    line: str
    """Below `lock`: a sorted set with PX, and a field of `meta`, as a lock has them for the processes that wait."""
    customers: str
    """Hash: customer id -> units reserved and confirmed; only in a pool that limits customers."""
    changes: str
    """Hash: id of a restock or withdrawal -> its result."""
    transfers: str
    """Hash: `sent:`, `away:` or `received:` and the other shard's number -> number and units; in shards only."""
    outbox: str
    """Sorted set: id of an unfinished submitted order -> server milliseconds of its next publication."""
    entries: str
    """Hash: order id -> how often it was begun and republished, and its request while it is queued."""
    dead: str
    """Hash: order id -> why it is no longer published."""
    directory: str
    """String: set if this sku is sold in shards. It is not the pool's own; a pool with it is not opened."""
    audit: str
    """String with PX: how far an audit in slices has come."""
    ledger_copy: str
    """Stream: the part of the ledger that a repair has copied so far; only its script uses it, while it runs."""

    def listed(self) -> list[str]:
        """Return KEYS of every pool script."""
        stock = [self.meta, self.stock, self.free, self.orders, self.holds, self.ledger, self.lock, self.freed]
        return [*stock, self.customers, self.changes, self.transfers, self.outbox, self.entries, self.dead]


@lru_cache(KEPT_MAX)
def shard_keys(sku: str) -> ShardKeys:
    """Build the keys of a pool in one hash slot: the pool `sku`, or one shard, which a `Shard` names."""
    name, _, place = sku.partition(SHARD_MARK)
    tag = pool_tag(name, place or "0")
    return ShardKeys(
        meta=f"{tag}:meta",
        stock=f"{tag}:stock",
        free=f"{tag}:free",
        orders=f"{tag}:orders",
        holds=f"{tag}:holds",
        ledger=f"{tag}:ledger",
        lock=f"{tag}:lock",
        freed=f"{tag}:freed",
        line=f"{tag}:lock:line",
        customers=f"{tag}:customers",
        changes=f"{tag}:changes",
        transfers=f"{tag}:transfers",
        outbox=f"{tag}:outbox",
        entries=f"{tag}:entries",
        dead=f"{tag}:dead",
        directory=directory_key(tag),
        audit=f"{tag}:audit",
        ledger_copy=f"{tag}:ledger:copy",
    )


OUTBOXES: Final = "seg:{outboxes}"
"""Set: the skus of pools that have received submitted orders."""
Duty = Literal["sweep", "expire", "finish_transfers", "relay", "forget", "audit"]
"""A periodic task of workers for a pool. The sweep checks each shard of a pool, the others the whole pool."""


def due_key(duty: Duty) -> str:
    """Build the key of the index of a duty: a sorted set, pool -> server ms at which a worker looks at it next."""
    return f"{OUTBOXES}:{duty}"


def due_keys() -> list[str]:
    """Build the keys of the index of all duties."""
    return [due_key(duty) for duty in get_args(Duty)]


HOLDS_NOTED: Final = f"{OUTBOXES}:holds"
"""Hash: pool -> the shortest noted hold in ms, and the server ms until which processes take such holds unnoted."""


REPORTS: Final = "seg:{reports}"
"""Hash with PX: a process that reports -> server ms, a tab, and its report."""


class BeatKeys(NamedTuple):
    """Keys of a schedule of periodic tasks; none expires."""

    leader: str
    """Hash: fencing `token` of the newest leader, `version` of the entries."""
    entries: str
    """Hash: name -> definition, of entries that were added at runtime."""
    runs: str
    """Hash: name -> the state of an entry: its last slot, and whether that was sent."""


def beat_keys(namespace: str) -> BeatKeys:
    """Build the keys of a schedule."""
    tag = f"seg:beat:{{{encoded(namespace)}}}"
    return BeatKeys(leader=f"{tag}:leader", entries=f"{tag}:entries", runs=f"{tag}:runs")


def message_key(queue: str) -> str:
    """Build the key for the messages of a queue that no worker could read.

    It is a hash: digest of a message -> when it arrived, why it was kept, and its text.
    """
    return f"seg:{{{encoded(queue)}:messages}}:kept"


def directory_key(tag: str) -> str:
    """Build the key of a directory of shards."""
    return f"{tag}:directory"


def pool_tag(sku: str, place: str) -> str:
    """Return the prefix of a pool's keys in one hash slot; `place` is "0", or a shard's number and salt."""
    return f"seg:{{{encoded(sku)}:{place}}}"


def directory_copy(sku: str, copy: int) -> str:
    """Build the key of a copy, from 0: each is in its own slot, so that most survive the loss of a master.

    It is a string: whether the pool is open, and the settings with which it was opened.
    """
    return directory_key(pool_tag(sku, f"copy{copy}" if copy else "0"))


class CartKeys(NamedTuple):
    """Keys of the carts whose first sku is this pool's, in the hash slot of its first shard."""

    meta: str
    """The pool's own key; a pool that is not open has no carts."""
    carts: str
    """Hash: cart id -> record."""
    unfinished: str
    """Sorted set: cart id -> server milliseconds from which any process may finish it."""


def cart_keys(home: str) -> CartKeys:
    """Build the keys of the carts that the pool `home` keeps."""
    meta = shard_keys(home).meta
    tag = meta.removesuffix(":meta")
    return CartKeys(meta=meta, carts=f"{tag}:carts", unfinished=f"{tag}:unfinished")


def listener_channel(listener_id: str) -> str:
    """Return the private channel on which a process wakes its own listener."""
    return f"seg:listener:{listener_id}"


# --- Deduplication. An entry of the claims names the key of a record: it is "key", or "key message". ---

ONCE_PARTITIONS: Final = 32
"""Number of hash slots over which a namespace's deduplication records are spread."""


class OnceKeys(NamedTuple):  # every publication creates one, and a frozen dataclass takes four times as long
    """Keys of one deduplication record, and of its partition."""

    record: str
    """Hash with PX: seat, run and outcome of the key."""
    messages: str
    """Prefix: `<messages>:<message>` is a hash with PX: the state of one message."""
    claims: str
    """Sorted set of the partition: key, or "key message" -> server milliseconds at which its hold expires."""
    freed: str
    """Channel: one message when the key may be free, or has an outcome."""
    runs: str
    """Sorted set with PX: message -> server milliseconds at which its lease ends, where several may run at once."""
    line: str
    """Sorted set with PX: message -> server microseconds at which it first had to wait for one of those runs."""
    member: str
    """The key as written in the claims."""

    def listed(self) -> list[str]:
        """Return KEYS of every record script."""
        return list(self[:6])


def once_partition(key: str) -> int:
    """Return the partition of a key, from 0: the same in every process and version."""
    return crc32(key.encode()) % ONCE_PARTITIONS


def once_claims(namespace: str, partition: int) -> str:
    """Build the key of the claims of one partition."""
    return f"seg:once:{{{encoded(namespace)}:{partition}}}:claims"


@lru_cache(KEPT_MAX)
def once_keys(namespace: str, key: str) -> OnceKeys:
    """Build the keys of the record of `key`."""
    tag = f"seg:once:{{{encoded(namespace)}:{once_partition(key)}}}"
    member = once_member(key)
    return OnceKeys(
        record=f"{tag}:key:{member}",
        messages=f"{tag}:message:{member}",
        claims=f"{tag}:claims",
        freed=f"{tag}:freed:{member}",
        runs=f"{tag}:runs:{member}",
        line=f"{tag}:line:{member}",
        member=member,
    )


def once_member(key: str) -> str:
    """Return the key with encoded spaces, which end it in an entry, and colons, which end it in a key's name."""
    return key.replace("%", "%25").replace(":", "%3A").replace(" ", "%20")


def once_claimed(entry: str) -> tuple[str, str]:
    """Return the key of an entry of the claims, and the message, or ""."""
    member, _, message = entry.partition(" ")
    return member.replace("%20", " ").replace("%3A", ":").replace("%25", "%"), message


def once_pattern(key: str = "") -> str:
    """Return the key pattern for the claims of every namespace; with a `key`, for its record in every namespace."""
    if not key:
        return once_claims("\n", 0).replace("{\n:0}", "{*}")
    before, after = once_keys("\n", key).record.split("\n")
    for wild in "\\*?[]":
        after = after.replace(wild, f"\\{wild}")
    return f"{before}*{after}"


def once_namespace(found: str) -> str | None:
    """Return the namespace of one of our keys, or None for any other key."""
    prefix = once_claims("", 0).partition("{")[0]
    tag, closed, _ = found.removeprefix(prefix + "{").partition("}")
    encoded, colon, _ = tag.rpartition(":")
    if not found.startswith(prefix + "{") or not closed or not colon:
        return None
    return encoded.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
