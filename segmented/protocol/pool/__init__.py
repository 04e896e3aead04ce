"""Operations on stock pools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NoReturn

from redis.exceptions import ResponseError

from segmented.errors import (
    AssignedElsewhere,
    ChangeMismatch,
    EpochEnded,
    InvalidInput,
    OrderUnknown,
    PoolGated,
    PoolInShards,
    PoolVanished,
    StoreRefused,
)
from segmented.keys import KEPT_MAX, cart_keys, shard_keys
from segmented.ledger_lines import entries_of, parse_record
from segmented.models import (
    AlreadyOpen,
    Closed,
    LedgerEntry,
    Opened,
    OrderRecord,
    OrderState,
    PoolClosed,
    PoolState,
    Resized,
    Restocked,
    TooFew,
    Transfer,
)
from segmented.models.ids import SEGMENT_COUNT_MAX, counted, plural
from segmented.models.pools import (
    DATABASE,
    MEMORY,
    UNASSIGNED,
    Assigned,
    Assignment,
    LedgerStep,
    PoolActivity,
    Profile,
    is_profile,
    pool_profile,
)
from segmented.protocol.base import AnswerT_co, Operation, ignored, profile_wait
from segmented.protocol.wire import (
    POSITION,
    Call,
    Command,
    Finish,
    Reply,
    Send,
    Sight,
    always,
    pairs_in,
    plain_call,
    position,
    readable,
    scan_call,
    script_call,
    text,
)
from segmented.values import light_dataclass

EVEN: Final = ("even", b"even")
"""Stands for the units of segments that were just split evenly, as text and as bytes."""
STATES: Final[dict[str, OrderState]] = {
    "r": "reserved",
    "s": "confirmed",
    "c": "confirmed",
    "v": "cancelled",
    "x": "cancelled",
    "e": "expired",
    "f": "refused",
}
"""States of orders by the scripts' abbreviations. An order that an earlier epoch sold is sold (`s`).

The last abbreviation of a state is the one that is written.
"""
NOT_WAITED_FOR: Final = frozenset({str(MEMORY), str(DATABASE)})
"""Profiles whose changes are acknowledged by the script alone, as it returns."""


def sight_of_state(_: object, reply: Reply, answer: Any) -> Sight:  # noqa: ARG001  # a method of the operations
    """Return what the state of a pool tells of its progress; its changes may be lost before they are acknowledged."""
    state = answer if isinstance(answer, PoolState) else answer.state
    return state.epoch, state.sequence if state.profile in NOT_WAITED_FOR else 0, 0


@light_dataclass(frozen=True, slots=True)
class OpenPool(Operation[Opened | AlreadyOpen]):
    """Open a pool with `stock` units, split evenly over `segment_count` segments."""

    sku: str
    stock: int
    segment_count: int
    gated: bool
    epoch: int = 1
    limit_per_customer: int | None = None
    """Maximum units of one customer, over all orders; None for no limit."""
    profile: Profile | None = None
    """None for the default: `database` if the pool is gated, otherwise `memory`."""
    sale_id: str = ""
    """Identity of the sale in its order database; empty if there is none."""
    assignment: Assignment = UNASSIGNED
    """The workers that take its submitted orders."""

    def call(self) -> Call:
        numbers = (self.stock, self.segment_count, int(self.gated), self.epoch, self.limit_per_customer or 0)
        profile = self.profile or pool_profile(self.sku, None, gated=self.gated)
        keys = [*with_carts(self.sku), shard_keys(self.sku).directory]
        return script_call("open_pool", keys, *numbers, str(profile), self.sale_id, *self.assignment.texts)

    def answer(self, reply: Reply) -> Opened | AlreadyOpen:
        kind = text(reply[0])
        if kind == "remains":
            raise StoreRefused(f"pool {self.sku!r} lost some of its keys; opening it again could sell its units twice")
        if kind == "in_shards":
            raise PoolInShards(self.sku)
        if kind == "vanished":
            raise PoolVanished(self.sku, int(reply[1]))
        state = pool_state(self.sku, reply[1])
        return Opened(state) if kind == "opened" else AlreadyOpen(state)

    sight = sight_of_state


@light_dataclass(frozen=True, slots=True)
class CheckProfile(Operation[None]):
    """Check that the server of a pool that is to be opened can keep to the profile; changes nothing."""

    sku: str
    profile: Profile

    def call(self) -> Call:
        return plain_call("EXISTS", shard_keys(self.sku).meta)  # its key decides which server of a cluster is asked

    answer = ignored

    def continued(self, _: None) -> Finish:
        """Ask the server for its state, for its configuration, and whether it knows and allows the waiting command."""
        profile = self.profile
        name, *_rest = profile_wait(profile)
        nothing: Command = (name, 0, 1) if name == "WAIT" else (name, 0, 0, 1)  # returns at once
        commands = (("INFO",), ("CONFIG", "GET", "appendfsync"), nothing)
        said, configured, waited = yield Send(commands)
        if isinstance(said, ResponseError):
            _refuse(self, f"the server's state is unknown, because the account may not run INFO: {said}", "allow +info")
        if isinstance(waited, ResponseError):
            cure = f"allow +{str(name).lower()}, or use Valkey, or Redis 7.2 or newer"
            _refuse(self, f"the server does not run {name} for this account: {waited}", cure)
        info = dict(line.partition(":")[::2] for line in text(said).splitlines() if not line.startswith("#"))
        if info.get("redis_mode") == "memory":  # the small Redis of a MemoryStore says so
            _refuse(self, "a memory store has no replicas and no disk", "leave the profile out, or use a RedisStore")
        if profile.kind == "fsync":
            _check_disk(self, info, configured)
        else:
            _check_replicas(self, info)


@light_dataclass(frozen=True, slots=True)
class ReadPool(Operation[PoolState]):
    """Read totals and units by segment, in one step."""

    sku: str

    def call(self) -> Call:
        return script_call("read_pool", keys_of(self.sku))

    def answer(self, reply: Reply) -> PoolState:
        return pool_state(self.sku, reply)

    sight = sight_of_state


@light_dataclass(frozen=True, slots=True)
class _Change(Operation[AnswerT_co]):
    sku: str
    change_id: str
    units: int
    epoch: int | None = None
    """The epoch in which an order database has begun the change: raises EpochEnded if the pool is in another one."""

    def _call(self, kind: str) -> Call:
        return script_call("restock", keys_of(self.sku), self.change_id, kind, self.units, self.epoch)

    def _answer(self, reply: Reply) -> Restocked | None:
        kind = text(reply[0])
        if kind == "mismatch":
            raise ChangeMismatch(self.sku, self.change_id)
        if kind == "full":
            raise too_many_units(self.sku, self.units, int(reply[1]))
        if kind_of(self.sku, reply) != "done":
            return None
        units, sequence, available = int(reply[1]), int(reply[2]), int(reply[3])
        return Restocked(self.change_id, units, sequence, available, replay=text(reply[4]) == "1")

    acknowledges = always

    def sight(self, reply: Reply, answer: Any) -> Sight | None:
        return (int(reply[5]), answer.sequence, 0) if isinstance(answer, Restocked) else None


@light_dataclass(frozen=True, slots=True)
class Restock(_Change[Restocked | Closed]):
    """Add units, once for each change id."""

    def call(self) -> Call:
        return self._call("restocked")

    def answer(self, reply: Reply) -> Restocked | Closed:
        return self._answer(reply) or Closed(self.change_id)


@light_dataclass(frozen=True, slots=True)
class Withdraw(_Change[Restocked | TooFew]):
    """Remove free units, all or none, once for each change id."""

    def call(self) -> Call:
        return self._call("withdrawn")

    def answer(self, reply: Reply) -> Restocked | TooFew:
        return self._answer(reply) or TooFew(self.change_id, self.units, int(reply[1]))


@light_dataclass(frozen=True, slots=True)
class Resize(Operation[Resized]):
    """Change the number of segments, and redistribute the free units evenly."""

    sku: str
    segment_count: int

    def call(self) -> Call:
        return script_call("resize", keys_of(self.sku), self.segment_count)

    def answer(self, reply: Reply) -> Resized:
        state, place = list(reply[1]), len(NUMBER_NAMES) + 1
        if state[place] in EVEN:
            base, extra = divmod(int(state[1 + NUMBER_NAMES.index("available")]), self.segment_count)
            units = (base + (segment < extra) for segment in range(self.segment_count))
            state[place] = [number for pair in enumerate(units) for number in pair]
        return Resized(pool_state(self.sku, state), replay=text(reply[2]) == "1")

    acknowledges = always

    sight = sight_of_state


@light_dataclass(frozen=True, slots=True)
class ClosePool(Operation[PoolClosed]):
    """Stop taking new orders."""

    sku: str

    def call(self) -> Call:
        return script_call("close_pool", keys_of(self.sku))

    def answer(self, reply: Reply) -> PoolClosed:
        return PoolClosed(pool_state(self.sku, reply[1]), replay=text(reply[2]) == "1")

    acknowledges = always

    sight = sight_of_state


@light_dataclass(frozen=True, slots=True)
class ListDue(Operation[tuple[str, ...]]):
    """List up to `limit` orders whose hold has expired, longest ago first."""

    sku: str
    limit: int

    def call(self) -> Call:
        return script_call("list_due", keys_of(self.sku), self.limit)

    def answer(self, reply: Reply) -> tuple[str, ...]:
        return tuple(text(order_id) for order_id in reply[1:])


@light_dataclass(frozen=True, slots=True)
class ReadActivity(Operation[PoolActivity]):
    """Read which segments are held, which processes wait, which holds end within `soon_ms`, and the outbox."""

    sku: str
    soon_ms: int

    def call(self) -> Call:
        return script_call("read_activity", keys_of(self.sku), self.soon_ms)

    def answer(self, reply: Reply) -> PoolActivity:
        return PoolActivity(tuple(digit == "1" for digit in text(reply[1])), *(int(part) for part in reply[2:9]))


class ReadingOrders(Operation[tuple[AnswerT_co, ...]]):
    """Read the records of up to 1,000 orders, in the order asked, each with the end of its hold in one step."""

    __slots__ = ()
    sku: str
    order_ids: tuple[str, ...]

    def call(self) -> Call:
        return script_call("read_orders", keys_of(self.sku), *self.order_ids)

    def answer(self, reply: Reply) -> tuple[AnswerT_co, ...]:
        found = zip(self.order_ids, reply[1], reply[2], strict=False)  # maybe of the first orders only
        return tuple(
            self.read(order_id, raw, None if until is None else moment(until)) for order_id, raw, until in found
        )

    def read(self, order_id: str, raw: Reply, hold_until_ms: int | None) -> AnswerT_co:
        """Return the answer for one order; without a record, `raw` is None."""
        raise NotImplementedError

    def continued(self, answer: Any) -> Finish:
        """Read the records that one page was too short for."""
        while left := self.order_ids[len(answer) :]:
            answer += yield replace(self, order_ids=left)  # type: ignore[type-var]  # each of them is a dataclass
        return answer


@light_dataclass(frozen=True, slots=True)
class ReadOrders(ReadingOrders[OrderRecord | None]):
    """Read what is known of each order; None if nothing is."""

    sku: str
    order_ids: tuple[str, ...]

    def read(self, order_id: str, raw: Reply, hold_until_ms: int | None) -> OrderRecord | None:
        return None if raw is None else order_record(order_id, raw, hold_until_ms)


@light_dataclass(frozen=True, slots=True)
class ScanOrders(Operation[tuple[int, tuple[OrderRecord, ...]]]):
    """Read some records and the next cursor (0 at the end); a record may appear twice while the sale runs."""

    sku: str
    cursor: int

    def call(self) -> Call:
        return scan_call("HSCAN", shard_keys(self.sku).orders, self.cursor)

    def answer(self, reply: Reply) -> tuple[int, tuple[OrderRecord, ...]]:
        return int(reply[0]), tuple(order_record(text(order_id), raw, None) for order_id, raw in pairs_in(reply[1]))


@light_dataclass(frozen=True, slots=True)
class _Ledger(Operation[AnswerT_co]):
    sku: str
    after: int
    limit: int
    epoch: int | None = None
    """The epoch of `after`, to read those of an earlier one as well; None: the pool's."""

    def call(self) -> Call:
        return script_call("read_ledger", keys_of(self.sku), self.after, self.limit, self.epoch)


@light_dataclass(frozen=True, slots=True)
class ReadLedger(_Ledger[tuple[LedgerEntry, ...]]):
    """Read the changes of up to `limit` sequence numbers after `after`, oldest first."""

    def answer(self, reply: Reply) -> tuple[LedgerEntry, ...]:
        found: list[LedgerEntry] = []
        for step in _steps(reply):
            with suppress(ValueError):  # another program's entry; the audit reports the missing one of the pool
                found += entries_of(step)
        return tuple(found)


@light_dataclass(frozen=True, slots=True)
class ReadSteps(_Ledger[tuple[LedgerStep, ...]]):
    """Read the same changes as `ReadLedger`, those of each sequence number in one piece."""

    def answer(self, reply: Reply) -> tuple[LedgerStep, ...]:
        return tuple(_steps(reply))


@light_dataclass(frozen=True, slots=True)
class AssignPool(Operation[Assigned]):
    """Name the queue and the step of the workers that take the pool's submitted orders from now on."""

    sku: str
    assignment: Assignment

    def call(self) -> Call:
        return script_call("assign_pool", keys_of(self.sku), *self.assignment.texts)

    def answer(self, reply: Reply) -> Assigned:
        return Assigned(pool_state(self.sku, reply[1]), replay=text(reply[2]) == "1")

    acknowledges = always

    sight = sight_of_state


@light_dataclass(frozen=True, slots=True)
class CheckAssignment(Operation[None]):
    """Raise AssignedElsewhere for a pool whose orders a worker with this queue and step must not take."""

    sku: str
    assignment: Assignment

    def call(self) -> Call:
        return plain_call("HMGET", shard_keys(self.sku).meta, "queue", "step")

    def answer(self, reply: Reply) -> None:
        queue, step = ("" if value is None else readable(value) for value in reply)
        if not self.assignment.takes(queue or None, step or None):
            raise AssignedElsewhere(self.sku, queue, step)


@lru_cache(KEPT_MAX)
def keys_of(sku: str) -> tuple[str, ...]:
    """Return KEYS of every pool script; cached, because each call needs them."""
    return tuple(shard_keys(sku).listed())


def with_carts(sku: str) -> list[str]:
    """Return KEYS of the scripts that take the carts of the pool, too."""
    kept = cart_keys(sku)
    return [*keys_of(sku), kept.carts, kept.unfinished]


def kind_of(sku: str, reply: Reply, order_id: str = "") -> str:
    """Return the kind of the answer, and raise for failures."""
    kind = text(reply[0])
    if kind == "elsewhere":
        raise AssignedElsewhere(sku, readable(reply[1]), readable(reply[2]))
    if kind == "unknown":
        raise OrderUnknown(order_id)
    if kind == "gated":
        raise PoolGated(sku, order_id or None)
    if kind == "late":
        raise EpochEnded(sku, int(reply[1]))
    return kind


def order_record(order_id: str, raw: Reply, hold_until_ms: int | None) -> OrderRecord:
    """Read a record. Raises ValueError for one that no script could have written."""
    found = parse_record(order_id, text(raw), hold_until_ms=hold_until_ms, states=STATES)
    if found is None:
        raise ValueError(f"the record of order {order_id!r} cannot be read: audit the pool")
    return found


def _steps(reply: Reply) -> Iterator[LedgerStep]:
    for entry_id, flat in reply[1]:
        epoch, _, sequence = text(entry_id).partition("-")
        found: dict[str, Any] = {readable(name): readable(said) for name, said in pairs_in(flat)}
        with suppress(KeyError, ValueError):  # another program's entry
            at_us = int(found["at_us"])
            yield LedgerStep(int(epoch), int(sequence), found["kind"], at_us, found["lines"], found["chain"])


def too_many_units(sku: str, units: int, left: int) -> InvalidInput:
    """Return the error for a restock that the pool's numbers cannot count."""
    message = (
        f"{counted(units, 'unit', 'is')} too many to restock {sku!r} by: with what it was given before, {left:,} more "
        f"{plural(left, 'is')} possible"
    )
    return InvalidInput(message)


def _check_disk(operation: CheckProfile, info: Mapping[str, str], configured: Reply) -> None:
    """Refuse a server that does not sync each change before it answers.

    With `appendfsync everysec` WAITAOF cannot be relied on: Valkey 9.1 acknowledges changes that are not synced yet.
    """
    if info.get("aof_enabled") != "1":
        _refuse(operation, "the server writes no append-only file", "set appendonly yes and appendfsync always")
    if isinstance(configured, ResponseError):  # as on a managed server
        why = "the server writes an append-only file, but how it syncs it is unknown, because it forbids CONFIG"
        _refuse(operation, f"{why}: {configured}", "allow +config|get, or use an order database")
    fsync = {text(name): text(value) for name, value in pairs_in(configured)}.get("appendfsync", "unknown")
    if fsync != "always":
        why = f"the server has appendfsync {fsync}, so WAITAOF may count a change that is not on the disk"
        _refuse(operation, why, "set appendfsync always")


def _check_replicas(operation: CheckProfile, info: Mapping[str, str]) -> None:
    lines = [value for name, value in info.items() if name.startswith("slave") and "=" in value]
    online = sum("state=online" in line.split(",") for line in lines)
    wanted = operation.profile.replicas
    if online < wanted:
        _refuse(
            operation,
            f"the server has {online} connected replicas of the {wanted} wanted",
            "connect more, or ask for fewer",
        )


def _refuse(operation: CheckProfile, why: str, cure: str) -> NoReturn:
    raise InvalidInput(f"pool {operation.sku!r} cannot be opened with profile {operation.profile}: {why}; {cure}")


# --- numbers that another program may have overwritten: unreadable ones are listed and never raise ---

WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
NUMBER_NAMES: Final = (
    "epoch",
    "segment_count",
    "gated",
    "sequence",
    "opened",
    "available",
    "reserved",
    "confirmed",
    "restocked",
    "withdrawn",
    "sent",
    "received",
    "customer_limit",
    "closed",
    "order_count",
)
"""In the order of the scripts' answers, from the second place on; the units of the segments follow."""
BOUNDS: Final = (("segment_count", 1, SEGMENT_COUNT_MAX), ("epoch", 1, 2**53 - 1), ("sequence", 0, 2**53 - 1))
"""Numbers that others are counted by, with the least and the most that a pool can have."""
TRANSFER: Final = re.compile(r"(sent|away|received):([0-9]{1,4})")
THAWED: Final = re.compile(r"epoch:[0-9]{1,4} [0-9]{1,15}")
"""A note of another shard's epoch, and its text."""
TRANSFERRED: Final = re.compile(r"([0-9]{1,15}) ([0-9]{1,15})")
MOMENT_MAX: Final = 1 << 62


def whole(value: Reply) -> int | None:
    """Parse an integer as the server does; None for anything else."""
    found = "" if value is None else readable(value)
    return int(found) if WHOLE.fullmatch(found) else None


def moment(score: Reply) -> int:
    """Parse the end of a hold in milliseconds: the score of a sorted set, which may be infinite."""
    return int(max(-MOMENT_MAX, min(MOMENT_MAX, float(readable(score)))))


def pool_state(sku: str, reply: Reply) -> PoolState:
    """Read the answer of `read_pool`, or the shorter state in the answers of others; kind comes first in both."""
    found = {name: whole(value) for name, value in zip(NUMBER_NAMES, reply[1:], strict=False)}
    flat = reply[len(NUMBER_NAMES) + 1]
    units = {readable(segment): whole(count) for segment, count in pairs_in(flat)}
    profile = readable(reply[len(NUMBER_NAMES) + 2])
    sale_id, queue, step = map(readable, reply[len(NUMBER_NAMES) + 3 : len(NUMBER_NAMES) + 6])
    for name, least, most in BOUNDS:
        if not least <= (found[name] or 0) <= most:
            found[name] = None
    more, transfers = (*reply[len(NUMBER_NAMES) + 6 :], None, None)[:2]
    if more:
        found |= {"fence": whole(more[1]), "cursor": whole(more[2]), "lost": whole(more[4])}
        found |= {"forgotten": whole(more[7])} if more[7] else {}
        found |= {} if not more[5] or POSITION.fullmatch(readable(more[5])) else {"relayed": None}
    between = _transfers(transfers or ())
    unreadable = [name for name, value in found.items() if value is None]
    unreadable += [f"segment {name}" for name, value in units.items() if value is None or whole(name) is None]
    unreadable += [field for field, transfer in between.items() if transfer is None]
    unreadable += [] if is_profile(profile) else ["profile"]
    number = {name: value or 0 for name, value in found.items()}
    return PoolState(
        sku=sku,
        epoch=number["epoch"],
        segment_count=number["segment_count"],
        gated=bool(number["gated"]),
        sequence=number["sequence"],
        opened=number["opened"],
        available=number["available"],
        reserved=number["reserved"],
        confirmed=number["confirmed"],
        order_count=number["order_count"],
        stock=tuple(units.get(str(segment)) or 0 for segment in range(number["segment_count"])),
        restocked=number["restocked"],
        withdrawn=number["withdrawn"],
        sent=number["sent"],
        received=number["received"],
        limit_per_customer=number["customer_limit"] or None,
        is_closed=bool(number["closed"]),
        profile=profile,
        queue=queue or None,
        step=step or None,
        sale_id=sale_id,
        unreadable=tuple(unreadable),
        ledger_end=_end_beyond(readable(more[0]), number["epoch"], number["sequence"]) if more else "",
        frozen=_seen(readable(more[3]), number) if more else None,
        lost=number.get("lost", 0),
        forgotten=number.get("forgotten"),
        relayed=position(readable(more[5])) if more and POSITION.fullmatch(readable(more[5])) else None,
        relay_age_ms=int(more[6]) if more else 0,
        transfers=tuple(sorted(transfer for transfer in between.values() if transfer is not None)),
    )


def _transfers(flat: Sequence[Reply]) -> dict[str, Transfer | None]:
    """Read a shard's notes of units between it and others; None for an unreadable note."""
    found: dict[str, Transfer | None] = {}
    for field, said in ((readable(name), readable(note)) for name, note in pairs_in(flat)):
        if THAWED.fullmatch(f"{field} {said}"):
            continue
        about, numbers = TRANSFER.fullmatch(field), TRANSFERRED.fullmatch(said)
        found[f"transfer {field}"] = (
            Transfer(about[1], int(about[2]), int(numbers[1]), int(numbers[2])) if about and numbers else None  # type: ignore[arg-type]  # one of the three kinds
        )
    return found


def _seen(said: str, number: dict[str, int]) -> tuple[int, int] | None:
    """Return what a frozen pool lacks, None if it sells. An unreadable text freezes it at its own numbers."""
    if not said:
        return None
    return position(said) if POSITION.fullmatch(said) else (number["epoch"], number["sequence"])


def _end_beyond(last_id: str, epoch: int, sequence: int) -> str:
    """Return the id of the ledger's last entry if the pool's next entry could not follow it."""
    first, _, second = last_id.partition("-")
    is_beyond = second.isdecimal() and (int(first), int(second)) > (epoch, sequence)
    return last_id if is_beyond else ""
