"""Operations on pools that lost changes."""

from __future__ import annotations

from typing import Final, Literal

from segmented.errors import AnotherDatabase, InvalidInput, PoolNotFrozen, PoolNotGated, ThawGated
from segmented.models import Frozen, Thawed, Transfer, Verified
from segmented.models.ids import plural
from segmented.protocol.base import Operation
from segmented.protocol.pool import keys_of, pool_state
from segmented.protocol.wire import Call, Reply, Sight, position, script_call, text
from segmented.values import light_dataclass

FATE_LETTERS: Final = {"confirmed": "c", "cancelled": "x", "reserved": "r"}


@light_dataclass(frozen=True, slots=True)
class FreezePool(Operation[Frozen]):
    """Stop a pool of this `epoch`, because its order database, or another shard, knows of changes that it lacks."""

    sku: str
    epoch: int
    latest: int = 0
    """An epoch in which the pool may have been since: it is thawed in a later one only."""

    def call(self) -> Call:
        return script_call("freeze_pool", keys_of(self.sku), self.epoch, self.latest)

    def answer(self, reply: Reply) -> Frozen:
        if text(reply[0]) == "late":
            raise another_epoch(self.sku, self.epoch, int(reply[1]))
        return Frozen(self.sku, found=(int(reply[1]), int(reply[2])), seen=position(text(reply[3])))


@light_dataclass(frozen=True, slots=True)
class VerifyPool(Operation[Verified | str]):
    """Compare a gated pool with the `epoch` and the highest `sequence` that its order database has seen.

    If the pool is behind, it is frozen: raises PoolFrozen. Otherwise it is verified on this server, if the database was
    read after the `turn` of this server and this epoch had begun; if not, answers with the turn to give then.

    Raises AnotherDatabase if the pool has noted another sale than `sale_id`; a pool that has noted none notes it.
    """

    sku: str
    epoch: int
    sequence: int
    turn: str = ""
    sale_id: str = ""
    """Identity of the sale in the order database; empty if it has none."""

    def call(self) -> Call:
        return script_call("verify_pool", keys_of(self.sku), self.epoch, self.sequence, self.turn, self.sale_id)

    def answer(self, reply: Reply) -> Verified | str:
        match text(reply[0]):
            case "not_gated":
                raise PoolNotGated(self.sku)
            case "another_sale":
                raise AnotherDatabase(self.sku)
            case "late":
                raise another_epoch(self.sku, self.epoch, int(reply[1]))
            case "another":
                return text(reply[1])
        return Verified(self.sku, replay=text(reply[1]) == "1")


@light_dataclass(frozen=True, slots=True)
class ThawPool(Operation[Thawed | None]):
    """Let a frozen pool sell again in a later `epoch`, with `sold` units sold. None: `decided` is ended, more follows.

    `decided` are reserved orders, up to 1,000, that were sold, voided or cancelled; one that is "reserved" gets a hold
    again if it has none. With `is_last` the numbers are replaced: what is neither sold nor still reserved is free. A
    gated pool must be verified before it sells.
    """

    sku: str
    epoch: int
    sold: int
    stocked: int | None = None
    """Units ever stocked, as the order database has it; None: as the pool has it."""
    is_stored: bool = False
    """Whether the order database is in this epoch."""
    decided: tuple[tuple[str, Literal["confirmed", "cancelled", "reserved"]], ...] = ()
    is_last: bool = True
    reserved: tuple[int, int] | None = None
    """The pool's number of reserved units, and their number by its orders, which replaces it; None: it is right."""
    transfers: tuple[Transfer, ...] = ()
    """The units that other shards have sent to it and received from it, with their epochs; it adds those it lacks.

    For a gated shard they are those of the order database, for all other shards, and replace its own numbers.
    """

    def call(self) -> Call:
        flags = (int(self.is_stored), int(self.is_last), *(self.reserved or (None, None)))
        notes = [part for one in self.transfers for part in (one.kind, one.other, one.number, one.units, one.epoch)]
        decided = [part for order_id, state in dict(self.decided).items() for part in (order_id, FATE_LETTERS[state])]
        numbers = (self.epoch, self.stocked, self.sold, *flags, len(self.transfers), *notes)
        return script_call("thaw_pool", keys_of(self.sku), *numbers, *decided)

    def answer(self, reply: Reply) -> Thawed | None:
        sku = self.sku
        match text(reply[0]):
            case "sells":
                raise PoolNotFrozen(sku)
            case "gated":
                raise ThawGated(sku)
            case "not_gated":
                raise PoolNotGated(sku)
            case "late":
                raise another_epoch(sku, self.epoch, int(reply[1]))
            case "too_many":
                raise TooManySold(sku, sold=self.sold, stocked=int(reply[1]), reserved=int(reply[2]))
            case "counted_before":
                raise counted_before(sku)
            case "ending":
                return None
        return Thawed(pool_state(sku, reply[1]), replay=text(reply[2]) == "1")

    def sight(self, _: Reply, answer: Thawed | None) -> Sight | None:
        return None if answer is None else (answer.state.epoch, answer.state.sequence, 0)


@light_dataclass(frozen=True, slots=True)
class RecountPool(Operation[bool]):
    """Replace the numbers of a frozen gated pool by those counted from its records; it stays frozen, for a `ThawPool`.

    One with a number that cannot be read is frozen by this. False: its numbers have changed since they were counted.
    """

    sku: str
    reserved: int
    confirmed: int
    restocked: int
    withdrawn: int
    segment_count: int
    sequence: int
    """The highest sequence number of a record."""
    before: tuple[int, int]
    """Units reserved and confirmed before the count, as `ReadPool` answers."""

    def call(self) -> Call:
        counted = (self.reserved, self.confirmed, self.restocked, self.withdrawn)
        return script_call("recount_pool", keys_of(self.sku), *counted, self.segment_count, self.sequence, *self.before)

    def answer(self, reply: Reply) -> bool:
        match text(reply[0]):
            case "sells":
                raise PoolNotFrozen(self.sku)
            case "not_gated":
                raise PoolNotGated(self.sku)
            case "outrun":
                return False
        return True


def another_epoch(sku: str, epoch: int, found: int) -> InvalidInput:
    """Return the error for an epoch that is not the one it has to be."""
    message = f"pool {sku!r} is in epoch {found}, which does not fit epoch {epoch}: read its state and try again"
    return InvalidInput(message)


class TooManySold(InvalidInput):
    """More units of a frozen pool are sold and reserved than it ever had."""

    def __init__(self, sku: str, sold: int, stocked: int, reserved: int = 0) -> None:
        """Create the error with the pool and its units. Reserved orders can be cancelled, sold ones cannot."""
        more = f"{sold} {plural(sold, 'sold unit', 'is')}"
        if reserved:
            more = f"{sold} sold and {reserved} reserved units are"
        super().__init__(
            f"{more} more than the {stocked} {plural(stocked, 'unit')} that pool {sku!r} ever had: check the number, "
            "or give the units ever stocked with stocked=N, in the command --stocked N"
        )
        self.sku = sku
        self.sold = sold
        self.stocked = stocked
        self.reserved = reserved


def counted_before(sku: str) -> InvalidInput:
    """Return the error for a count of reserved units that another thaw has overtaken."""
    message = f"another thaw of pool {sku!r} cancels orders: read its state and try again"
    return InvalidInput(message)
