"""The index of what is due: when workers look at each pool next, a sorted set for each duty.

The index has a hash slot of its own, so no script of a pool can move the pool in it. The process that opens a pool,
takes units or submits orders does, before the change and seldom; a worker that looked moves it on. What nobody noted,
because the index was lost, is found by the look at quiet pools, which comes to each in turn.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

from segmented.keys import HOLDS_NOTED, OUTBOXES, Duty, cart_keys, due_key, due_keys, shard_keys
from segmented.models.shards import SHARD_MARK
from segmented.protocol.base import Operation, ignored, is_one
from segmented.protocol.wire import Call, Reply, optional_number, pairs_in, plain_call, readable, script_call, text
from segmented.values import light_dataclass

SOON_MS: Final = 10_000
"""Time to the look of the duties that follow each change: transfers and relay."""
AUDIT_SOON_MS: Final = 600_000
"""The same of the audit."""
AGAIN_MS: Final = 3_000
EACH_MS: Final[MappingProxyType[Duty, int]] = MappingProxyType(
    {"sweep": 10_000, "expire": 10_000, "finish_transfers": 60_000, "relay": 60_000, "forget": 60_000, "audit": 60_000}
)
"""Time between the looks at two quiet pools: about 10 commands a second in all, at any number of pools."""


def base_of(name: str) -> str:
    """Return the sku of a pool or shard."""
    return name.partition(SHARD_MARK)[0]


@light_dataclass(frozen=True, slots=True)
class NotePool(Operation[None]):
    """Enter a pool in the index, or move it forward; without times it only has to be known."""

    sku: str
    sweep_ms: int | None = None
    expire_ms: int | None = None
    submits: bool = False
    """Whether orders are submitted to it."""

    def call(self) -> Call:
        soon = (None, None) if self.sweep_ms is self.expire_ms is None else (SOON_MS, AUDIT_SOON_MS)
        times = (self.sweep_ms, self.expire_ms, *soon)
        keys = [*due_keys(), OUTBOXES, HOLDS_NOTED]
        return script_call("note_pool", keys, self.sku, base_of(self.sku), *times, int(self.submits))

    answer = ignored


@light_dataclass(frozen=True, slots=True)
class DuePools:
    """Pools that are due, longest ago first, each with its score; if there is none, ms until the first will be."""

    pools: tuple[tuple[str, str], ...]
    first_in_ms: int | None
    """None: some are due now, or the index is empty."""


@light_dataclass(frozen=True, slots=True)
class ListDuePools(Operation[DuePools]):
    """List pools that are due."""

    duty: Duty
    offset: int
    limit: int = 1_000

    def call(self) -> Call:
        return script_call("list_due_pools", [due_key(self.duty)], self.offset, self.limit)

    def answer(self, reply: Reply) -> DuePools:
        pools = tuple((readable(name), text(score)) for name, score in pairs_in(reply[1]))
        return DuePools(pools, optional_number(reply[0]))


@light_dataclass(frozen=True, slots=True)
class MovePool(Operation[bool]):
    """Move a pool on after a look, unless something new came meanwhile; returns whether it was moved."""

    duty: Duty
    name: str
    seen: str
    after_ms: int | Literal["gone"] | None
    """None: nothing is due."""
    quiet_ms: int

    def call(self) -> Call:
        again_ms = {"audit": self.quiet_ms, "finish_transfers": SOON_MS}.get(self.duty, AGAIN_MS)
        times = (self.after_ms, again_ms, self.quiet_ms, EACH_MS[self.duty], int(self.duty == "expire"))
        return script_call("move_pool", [due_key(self.duty), HOLDS_NOTED], self.name, self.seen, *times)

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class NextDue:
    """When a pool has something to do next, in ms; None: never. Below 0: since then."""

    publish_in_ms: int | None
    hold_in_ms: int | None
    cart_in_ms: int | None


@light_dataclass(frozen=True, slots=True)
class ReadNextDue(Operation[NextDue]):
    """Read when a pool or shard has something to do: its outbox, its holds and its carts."""

    sku: str

    def call(self) -> Call:
        return script_call("read_next_due", [*shard_keys(self.sku).listed(), cart_keys(self.sku).unfinished])

    def answer(self, reply: Reply) -> NextDue:
        return NextDue(*(int(text(part)) if text(part) else None for part in reply[1:4]))


@light_dataclass(frozen=True, slots=True)
class ListPools(Operation[tuple[str, ...]]):
    """List the skus of all pools that were opened, sorted."""

    def call(self) -> Call:
        return plain_call("ZRANGE", due_key("audit"), 0, -1)

    def answer(self, reply: Reply) -> tuple[str, ...]:
        return tuple(sorted(readable(sku) for sku in reply))


@light_dataclass(frozen=True, slots=True)
class DropPool(Operation[None]):
    """Take a pool out of the index, and of the pools that orders were submitted to."""

    sku: str

    def call(self) -> Call:
        return script_call("drop_pool", [OUTBOXES, *due_keys(), HOLDS_NOTED], self.sku, base_of(self.sku))

    answer = ignored
