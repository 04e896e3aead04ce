"""Operations by which a pool's data leaves Redis.

The ledger is relayed to a database, and trimmed behind what was relayed; records of finished orders are forgotten
behind that. A closed pool is archived: all its records are read as they are, then removed in bounded steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, unquote

from segmented.errors import InvalidInput, PoolDrifted, StoreRefused
from segmented.keys import directory_copy, shard_keys
from segmented.models.ids import plural
from segmented.models.pools import ENTRIES_AT_ONCE, Archiving, PoolKey, Trimmed
from segmented.models.shards import Shard
from segmented.protocol.audit import SETS, key_of
from segmented.protocol.base import Operation, ignored
from segmented.protocol.pool import keys_of, with_carts
from segmented.protocol.wire import Call, Reply, pairs_in, plain_call, scan_call, script_call, text
from segmented.values import light_dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models import ShardDirectory

Change = tuple[int, int]
"""Epoch and sequence number."""
Purpose = Literal["archive", "check", "delete", "drop"]
Refused = Literal["not_gated", "not_trimmed"]
RECORDS_AT_ONCE: Final = 200
"""Records of one page: an order may have thousands of parts."""


@light_dataclass(frozen=True, slots=True)
class NoteRelayed(Operation[tuple[int, int]]):
    """Note that the ledger is in a database up to this change. Answers with the change after which to relay.

    None: the database has nothing of the ledger, which is relayed from its first entry. From then on the ledger is
    trimmed only behind the noted change, which never moves back. Raises InvalidInput if the ledger does not continue
    what the database has.
    """

    sku: str
    relayed: tuple[int, int] | None
    """Epoch and sequence number of the database's last entry."""

    def call(self) -> Call:
        return script_call("note_relayed", keys_of(self.sku), *(self.relayed or ("", "")))

    def answer(self, reply: Reply) -> tuple[int, int]:
        found = int(reply[1]), int(reply[2])
        match text(reply[0]):
            case "behind" | "gap" as reason:
                raise ledger_diverged(self.sku, self.relayed, found, reason)
        return found


@light_dataclass(frozen=True, slots=True)
class TrimLedger(Operation[Trimmed]):
    """Write a checkpoint, and drop the entries before the newest checkpoint that leaves the last `keep` changes.

    Frees the memory of at most 10,000 changes in one step. Raises PoolDrifted if the totals do not add up, and
    StoreRefused for entries of a relayed ledger that were not relayed yet.
    """

    sku: str
    keep: int
    relayed_only: bool = False
    """Delete only what was relayed, instead of refusing."""

    def call(self) -> Call:
        return script_call("trim_ledger", keys_of(self.sku), self.keep, int(self.relayed_only))

    def answer(self, reply: Reply) -> Trimmed:
        kind = text(reply[0])
        if kind == "unsound":
            raise PoolDrifted(self.sku)
        if kind == "not_relayed":
            relayed, last = (int(reply[1]), int(reply[2])), (int(reply[3]), int(reply[4]))
            raise not_relayed(self.sku, relayed, last)
        return Trimmed(int(reply[1]), int(reply[2]), text(reply[3]) == "1")


@light_dataclass(frozen=True, slots=True)
class Forgot:
    """The result of one step."""

    orders: int
    """Records that this step dropped."""
    units: int
    """Confirmed units of these."""
    judged: int
    """How many of the named orders this step has looked at, from the first one; the others need another step."""
    wait_ms: int
    """Milliseconds until records may be dropped, so that every process knows by then; 0: they may."""


@light_dataclass(frozen=True, slots=True)
class ForgetOrders(Operation[Forgot]):
    """Drop the records of up to 1,000 finished orders, each only if its last change is still the named one.

    Confirmed units of dropped records count as `lost` units: sold ones that the pool has no orders for. The first call
    drops nothing, and notes that the pool will forget: `notice_ms` later it may. A limit per customer goes on counting
    them. Raises InvalidInput for a pool without an order database, or whose ledger was not relayed and trimmed behind
    `up_to`.
    """

    sku: str
    up_to: int
    """The highest sequence number of a last change whose record may go."""
    notice_ms: int
    orders: tuple[tuple[str, int], ...] = ()
    """Order ids, each with the sequence number of its last change."""

    def call(self) -> Call:
        orders = [part for order_id, sequence in self.orders for part in (order_id, sequence)]
        return script_call("forget_orders", keys_of(self.sku), self.up_to, self.notice_ms, *orders)

    def answer(self, reply: Reply) -> Forgot:
        kind = text(reply[0])
        if kind == "waiting":
            return Forgot(0, 0, 0, int(reply[1]))
        if kind != "forgot":
            raise cannot_forget(self.sku, "not_gated" if kind == "not_gated" else "not_trimmed")
        return Forgot(int(reply[1]), int(reply[2]), int(reply[3]), 0)


@light_dataclass(frozen=True, slots=True)
class Erased:
    """The result of one step."""

    erased: int
    undecided: int
    """Orders and carts of the customer that stay because they are not decided."""
    recent: int
    """Orders that stay because the ledger has entries of them."""


@light_dataclass(frozen=True, slots=True)
class EraseCustomer(Operation[Erased]):
    """Take a customer's id out of the records of up to 1,000 decided orders, or drop records of finished carts.

    The `count` is what the customer has bought with orders that the pool has forgotten.
    """

    sku: str
    customer_id: str
    kind: Literal["orders", "carts", "count"]
    ids: tuple[str, ...] = ()

    def call(self) -> Call:
        return script_call("erase_customer", with_carts(self.sku), self.customer_id, self.kind, *self.ids)

    def answer(self, reply: Reply) -> Erased:
        return Erased(*(int(part) for part in reply[1:4]))


@light_dataclass(frozen=True, slots=True)
class BeginArchive(Operation[Archiving]):
    """Let a closed pool answer reads alone, if nothing is left to decide in it. Safe to repeat.

    To `delete` it, it is being removed at once; to `drop` it, whatever is left to decide in it. A `check` changes
    nothing. Raises InvalidInput for a pool that is open or has something left to decide, and PoolArchived once it is
    removed.
    """

    sku: str
    purpose: Purpose = "archive"

    def call(self) -> Call:
        return script_call("begin_archive", with_carts(self.sku), self.purpose)

    def answer(self, reply: Reply) -> Archiving:
        match _answered(self.sku, reply):
            case "open":
                raise still_open(self.sku, self.purpose)
            case "unsettled":
                raise not_archivable(self.sku, [int(part) for part in reply[1:6]], self.purpose)
            case "removing":
                return _complete(self.sku, reply)
        return Archiving(self.sku, int(reply[1]))


@light_dataclass(frozen=True, slots=True)
class AbandonArchive(Operation[None]):
    """Let a pool be as it was before BeginArchive. Without effect once its removal has begun."""

    sku: str

    def call(self) -> Call:
        return script_call("abandon_archive", keys_of(self.sku))

    answer = ignored


@light_dataclass(frozen=True, slots=True)
class CompleteExport(Operation[Archiving]):
    """Note that the archive with this `digest` is complete at `target`, so that the pool's keys may be removed.

    Returns the archive that counts: the first one. Raises StoreRefused if the pool's server changed since BeginArchive.
    """

    sku: str
    digest: str
    target: str

    def call(self) -> Call:
        return script_call("complete_export", keys_of(self.sku), self.digest, quote(self.target))

    def answer(self, reply: Reply) -> Archiving:
        _answered(self.sku, reply)
        return _complete(self.sku, reply)


@light_dataclass(frozen=True, slots=True)
class ScanRecords(Operation[tuple[int, tuple[tuple[str, str], ...]]]):
    """Read some records of a key, name and value as they are, and the next cursor (0 at the end)."""

    sku: str
    key: PoolKey
    cursor: int

    def call(self) -> Call:
        command = "ZSCAN" if self.key in SETS else "HSCAN"
        return scan_call(command, key_of(self.sku, self.key), self.cursor, RECORDS_AT_ONCE)

    def answer(self, reply: Reply) -> tuple[int, tuple[tuple[str, str], ...]]:
        return int(reply[0]), _fields(reply[1])


@light_dataclass(frozen=True, slots=True)
class ScanLedger(Operation[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]]):
    """Read up to `limit` entries of the ledger after an id, `0-0` for all, each with its fields as they are."""

    sku: str
    after_id: str
    limit: int

    def call(self) -> Call:
        return plain_call("XRANGE", shard_keys(self.sku).ledger, f"({self.after_id}", "+", "COUNT", self.limit)

    def answer(self, reply: Reply) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        return tuple((text(entry_id), _fields(found)) for entry_id, found in reply)


@light_dataclass(frozen=True, slots=True)
class RemoveRecords(Operation[int]):
    """Remove records of a key by name, up to 1,000; of the ledger, its oldest 200. Returns how many are left."""

    sku: str
    key: PoolKey
    names: tuple[str, ...] = ()

    def call(self) -> Call:
        return script_call("remove_records", with_carts(self.sku), self.key, ENTRIES_AT_ONCE, *self.names)

    def answer(self, reply: Reply) -> int:
        _answered(self.sku, reply)
        return int(reply[1])


@light_dataclass(frozen=True, slots=True)
class RemovePool(Operation[None]):
    """Remove a pool whose records are removed, but for a note of its archive, which stays `note_ms`."""

    sku: str
    note_ms: int

    def call(self) -> Call:
        keys = [*with_carts(self.sku), shard_keys(self.sku).ledger_copy]
        return script_call("remove_pool", keys, self.note_ms)

    def answer(self, reply: Reply) -> None:
        _answered(self.sku, reply)


@light_dataclass(frozen=True, slots=True)
class ArchiveDirectory(Operation[None]):
    """Note in one copy of a directory that its shards are archived. The note stays `note_ms`."""

    directory: ShardDirectory
    copy: int
    note_ms: int

    def call(self) -> Call:
        key = directory_copy(self.directory.sku, self.copy)
        return script_call("archive_directory", [key], self.directory.content, self.note_ms)

    def answer(self, reply: Reply) -> None:
        if text(reply[0]) == "differs":
            raise PoolDrifted(self.directory.sku)


def ledger_diverged(
    sku: str, relayed: Change | None, found: Change, reason: Literal["behind", "gap", "rewritten"]
) -> InvalidInput:
    """Return the error for a ledger that does not continue what a database has of it.

    `found` is the pool's last change if it is behind, otherwise the ledger's next one.
    """
    known = "nothing" if relayed is None else f"changes up to {relayed[0]}-{relayed[1]}"
    at = f"{found[0]}-{found[1]}"
    why = {
        "behind": (
            f"the pool is at change {at}: its server lost changes, or the database has another sale of this sku; "
            "audit the pool, or name the right database"
        ),
        "gap": (
            f"the ledger goes on with change {at}: those in between were relayed to another database, or this one was "
            "restored from an older backup; name the right one"
        ),
        "rewritten": (
            f"change {at} was not written after them: the server lost changes and gave their numbers again, or the "
            "database has another sale of this sku; audit the pool, or name the right database"
        ),
    }[reason]
    return InvalidInput(f"the database has {known} of the ledger of {sku!r}, and {why}")


def not_relayed(sku: str, relayed: Change, last: Change) -> StoreRefused:
    """Return the error for a trim that would delete entries up to `last`, which were not relayed."""
    message = (
        f"the ledger of {sku!r} was relayed up to change {relayed[0]}-{relayed[1]}, so it cannot be trimmed to "
        f"{last[0]}-{last[1]}: relay it first with 'segmented pool relay', or keep more changes"
    )
    return StoreRefused(message)


def cannot_forget(sku: str, reason: Refused) -> InvalidInput:
    """Return the error for a pool whose records cannot go."""
    why = {
        "not_gated": "keeps its records: it has no order database, and nothing else could answer a repeat of an order",
        "not_trimmed": (
            "keeps its records: its ledger was not relayed and trimmed behind them; "
            "use 'segmented pool relay' with --trim-keep"
        ),
    }[reason]
    return InvalidInput(f"pool {sku!r} {why}")


def not_archivable(sku: str, counts: Sequence[int], purpose: Purpose) -> InvalidInput:
    """Return the error for a pool in which something is left to decide: how many of each, in the script's order."""
    name = sku.sku if isinstance(sku, Shard) else sku
    left = (
        ("unit", "reserved: confirm or cancel the orders, or let their holds expire"),
        ("submitted order", "unfinished: let the workers finish what was submitted, or cancel it"),
        ("transfer", f"unfinished between shards: run 'segmented pool repair {name}'"),
        ("cart", f"unfinished: run 'segmented pool finish-carts {name}'"),
        ("change", f"not in the order database yet: run 'segmented pool relay {name} --database URL'"),
    )
    count, (what, said) = next(one for one in zip(counts, left, strict=True) if one[0])
    done = "archived" if purpose == "archive" else "deleted"
    return InvalidInput(f"pool {name!r} cannot be {done}: {count} {plural(count, what, 'is')} {said}{_anyway(purpose)}")


def still_open(sku: str, purpose: Purpose) -> InvalidInput:
    """Return the error for a pool that is open."""
    name = sku.sku if isinstance(sku, Shard) else sku
    return InvalidInput(f"pool {name!r} is open: close it first, with 'segmented pool close {name}'{_anyway(purpose)}")


def _anyway(purpose: Purpose) -> str:
    return "" if purpose == "archive" else "; unfinished=True, or --unfinished, deletes it as it is"


def _as_it_is(value: Reply) -> str:
    """Decode a text so that its bytes can be restored."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _fields(found: Reply) -> tuple[tuple[str, str], ...]:
    return tuple((_as_it_is(name), _score(value)) for name, value in pairs_in(found))


def _score(value: Reply) -> str:
    # RESP3 has floats
    return str(int(value)) if isinstance(value, float) and value.is_integer() else _as_it_is(value)


def _answered(sku: str, reply: Reply) -> str:
    """Return the kind of the answer. Raises StoreRefused if nobody archives the pool, or its server has changed."""
    kind = text(reply[0])
    if kind in {"not_begun", "not_removing", "more"}:
        raise StoreRefused(f"the server of pool {sku!r} changed while the pool was read: archive it again")
    return kind


def _complete(sku: str, reply: Reply) -> Archiving:
    return Archiving(sku, int(reply[1]), text(reply[2]), unquote(text(reply[3])))
