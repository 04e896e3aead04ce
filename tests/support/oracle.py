"""What a pool and a lock must answer, worked out without any code of theirs: a judge for memory and for servers.

It counts units by order, and knows holds, leases, customers and tokens. It does not know segments' stock, the ledger,
or which free segment a grant gets: of an answer it learns the segment, and checks that it was free. Times are whole
milliseconds. It expires all due holds at once, as a pool does that has few of them.
"""

from dataclasses import dataclass, field
from typing import Literal

from segmented.errors import SegmentedError
from segmented.models import (
    Acquired,
    Busy,
    Closed,
    Decided,
    Granted,
    LimitReached,
    Order,
    Reserved,
    Restocked,
    Settled,
    SoldOut,
)

Verdict = tuple[object, ...]
"""An answer's kind, and the numbers that it must have."""
UNKNOWN: Verdict = ("OrderUnknown",)


def verdict(answer: object) -> Verdict:
    """Reduce an answer, or an error, to what the oracle says of it."""
    match answer:
        case Reserved() | Granted():
            return type(answer).__name__, answer.quantity, answer.replay
        case SoldOut():
            return "SoldOut", answer.available, answer.reserved, answer.replay
        case Busy():
            return "Busy", answer.is_in_hand
        case LimitReached():
            return "LimitReached", answer.taken
        case Settled():
            return "Settled", answer.state, answer.quantity, answer.replay
        case Decided():
            return "Decided", answer.state
        case Restocked():
            return "Restocked", answer.units, answer.available, answer.replay
        case Acquired():
            return "Acquired", answer.replay
        case None | bool():
            return (answer,)
        case Closed() | SegmentedError() | _:
            return (type(answer).__name__,)


@dataclass(slots=True)
class Entry:
    """An order."""

    asked: int
    quantity: int
    customer: str | None
    state: str = "reserved"
    hold_until: int = 0
    holder: str | None = None
    segment: int = -1
    token: int = 0
    is_undone: bool = False
    """Cancelled for a caller that was gone: the id can be used again."""


@dataclass(slots=True)
class PoolOracle:
    """An open pool without an order database."""

    stock: int
    segments: int
    limit: int | None
    now: int = 0
    orders: dict[str, Entry] = field(default_factory=dict)
    leases: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Segment -> holder, and when its lease ends."""
    changes: dict[str, tuple[str, int]] = field(default_factory=dict)
    token: int = 0
    """The highest one granted."""
    is_closed: bool = False

    # --- numbers ---

    @property
    def reserved(self) -> int:
        return sum(one.quantity for one in self.orders.values() if one.state == "reserved")

    @property
    def confirmed(self) -> int:
        return sum(one.quantity for one in self.orders.values() if one.state == "confirmed")

    @property
    def available(self) -> int:
        return self.stock - self.reserved - self.confirmed

    def has(self, customer: str) -> int:
        """Return the units that a customer has, reserved or confirmed."""
        live = [one for one in self.orders.values() if one.state in {"reserved", "confirmed"}]
        return sum(one.quantity for one in live if one.customer == customer)

    def free_segments(self) -> set[int]:
        return {one for one in range(self.segments) if one not in self.leases or self.leases[one][1] <= self.now}

    # --- taking ---

    def reserve(self, order: Order, hold_ms: int, *, partial: bool) -> Verdict:
        known = self._known(order)
        if isinstance(known, Entry):
            if known.state != "reserved":
                return "Decided", known.state
            known.hold_until = max(known.hold_until, self.now + hold_ms)
            return "Reserved", known.quantity, True
        refusal = known or self._refusal(order, partial=partial)
        if refusal:
            return refusal
        taken = self._take(order, hold_ms)
        return "Reserved", taken.quantity, False

    def grant(self, order: Order, holder: str, ttl_ms: int, hold_ms: int, *, keeps: bool, partial: bool) -> Verdict:
        """Say what a grant gets; `note_grant` takes its segment and token from the answer."""
        known = self._known(order)
        if isinstance(known, Entry):
            if known.state == "refused":
                return "SoldOut", self.available, self.reserved, True
            if known.state != "reserved":
                return "Decided", known.state
            if self._is_leased(known) and known.holder != holder:
                return "Busy", True
            if not self._is_leased(known) and not self.free_segments():
                return "Busy", False
            known.hold_until = max(known.hold_until, self.now + hold_ms)
            if self._is_leased(known):
                self.leases[known.segment] = holder, self.now + ttl_ms
            return "Granted", known.quantity, True
        refusal = known or self._refusal(order, partial=partial)
        if refusal:
            if refusal[0] == "SoldOut" and keeps:
                self.orders[order.order_id] = Entry(order.quantity, order.quantity, order.customer_id, "refused")
            return refusal
        if not self.free_segments():
            return "Busy", False
        return "Granted", self._take(order, hold_ms).quantity, False

    def note_grant(self, answer: Granted, holder: str, ttl_ms: int) -> None:
        """Check the segment and the token of a grant."""
        one = self.orders[answer.order_id]
        if self._is_leased(one) and one.holder == holder:
            assert (answer.segment, answer.fencing_token) == (one.segment, one.token), answer
            return
        assert answer.segment in self.free_segments(), answer
        assert answer.fencing_token > self.token, answer
        one.segment, one.holder, one.token = answer.segment, holder, answer.fencing_token
        self.leases[one.segment], self.token = (holder, self.now + ttl_ms), answer.fencing_token

    def _known(self, order: Order) -> Entry | Verdict:
        """Return the order's entry, the error of other content, or nothing."""
        known = self.orders.get(order.order_id)
        if known is None or known.is_undone:
            return ()
        return known if (known.asked, known.customer) == (order.quantity, order.customer_id) else ("OrderMismatch",)

    def _refusal(self, order: Order, *, partial: bool) -> Verdict:
        """Return why an order gets nothing; expire what is due before it is refused for want of units."""
        if self.is_closed:
            return ("Closed",)
        if self.limit is not None and order.customer_id is None:
            return ("InvalidInput",)
        if self._allowed(order, partial=partial) < order.quantity:
            self.expire_due()
        allowed = self._allowed(order, partial=partial)
        if allowed == order.quantity or (partial and allowed > 0):
            return ()
        if self.limit is not None and order.customer_id is not None:
            left = self.limit - self.has(order.customer_id)
            if left <= 0 or (left < order.quantity and not partial):
                return "LimitReached", self.has(order.customer_id)
        return "SoldOut", self.available, self.reserved, False

    def _allowed(self, order: Order, *, partial: bool) -> int:
        """Return how many units the order may have now."""
        left = self.available
        if self.limit is not None and order.customer_id is not None:
            left = min(left, self.limit - self.has(order.customer_id))
        return order.quantity if left >= order.quantity else max(0, left) if partial else 0

    def _take(self, order: Order, hold_ms: int) -> Entry:
        quantity = self._allowed(order, partial=True)
        one = Entry(order.quantity, quantity, order.customer_id, hold_until=self.now + hold_ms)
        self.orders[order.order_id] = one
        return one

    # --- ending ---

    def renew(self, order_id: str, holder: str, ttl_ms: int, hold_ms: int) -> Verdict:
        one = self.orders.get(order_id)
        if one is None:
            return UNKNOWN
        if one.state != "reserved" or one.holder != holder or not self._is_leased(one):
            return ("Lost",)
        self.leases[one.segment] = holder, self.now + ttl_ms
        one.hold_until = max(one.hold_until, self.now + hold_ms)
        return ("Renewed",)

    def settle(
        self,
        order_id: str,
        state: Literal["confirmed", "cancelled", "expired"],
        holder: str | None = None,
        *,
        unheard: bool = False,
    ) -> Verdict:
        one = self.orders.get(order_id)
        if one is None:
            return UNKNOWN
        is_holders = holder in {None, one.holder}
        if one.state != "reserved":
            if (holder is not None and holder == one.holder) or (state == "confirmed" and is_holders):
                self._free(one)
            return "Settled", one.state, one.quantity, True
        if state == "cancelled" and not is_holders:
            return ("Superseded",)
        if state == "expired" and (one.hold_until > self.now or self._is_leased(one)):
            return (None,)
        one.state, one.is_undone = state, unheard
        if is_holders:
            self._free(one)
        return "Settled", state, one.quantity, False

    def expire_due(self) -> list[str]:
        """Expire every due hold without a living lease."""
        due = sorted((one.hold_until, order_id) for order_id, one in self.orders.items() if one.state == "reserved")
        return [
            order_id
            for hold_until, order_id in due
            if hold_until <= self.now and self.settle(order_id, "expired") != (None,)
        ]

    def _is_leased(self, one: Entry) -> bool:
        holder, until = self.leases.get(one.segment, ("", 0))
        return holder == one.holder and until > self.now

    def _free(self, one: Entry) -> None:
        if self._is_leased(one):
            del self.leases[one.segment]

    # --- the stock ---

    def change(self, kind: Literal["restock", "withdraw"], change_id: str, units: int) -> Verdict:
        if change_id in self.changes:
            if self.changes[change_id] != (kind, units):
                return ("ChangeMismatch",)
            return "Restocked", units, self.available, True
        if kind == "restock" and self.is_closed:
            return ("Closed",)
        if kind == "withdraw" and self.available < units:
            return ("TooFew",)
        self.changes[change_id] = kind, units
        self.stock += units if kind == "restock" else -units
        return "Restocked", units, self.available, False


@dataclass(slots=True)
class LockOracle:
    """A lock that up to `permits` hold, with leases and tokens."""

    permits: int = 1
    now: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    token: int = 0
    released: str = ""
    """The last holder that released."""

    def living(self) -> set[str]:
        return {holder for holder, end in self.ends.items() if end > self.now}

    def acquire(self, holder: str, ttl_ms: int) -> Verdict:
        living = self.living()
        if holder not in living and len(living) >= self.permits:
            return ("Held",)
        self.ends[holder] = self.now + ttl_ms
        return "Acquired", holder in living

    def note_token(self, token: int, *, is_new: bool) -> None:
        assert token > self.token if is_new else token == self.token
        self.token = token

    def renew(self, holder: str, ttl_ms: int) -> Verdict:
        if holder not in self.living():
            return ("Lost",)
        self.ends[holder] = self.now + ttl_ms
        return ("Renewed",)

    def release(self, holder: str) -> Verdict:
        if holder in self.living():
            del self.ends[holder]
            self.released = holder
            return ("Released",)
        is_repeat = self.permits == 1 and self.released == holder  # a semaphore does not remember who released
        return ("Released",) if is_repeat else ("Lost",)
