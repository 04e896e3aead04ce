"""The model of carts: one decision each, kept beside the pool of the first sku."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import CartGated, CartUnknown
from segmented.models import CartRecord, InspectedCart, UnfinishedCart, UnfinishedCarts
from segmented.models.carts import mismatch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.models import Cart, CartState, LineRefusal
    from segmented.protocol.pool.model_records import ModelPool

MAY_BECOME: Final[dict[str, tuple[str, ...]]] = {
    "open": ("reserved", "refused", "cancelled", "expired"),
    "reserved": ("confirmed", "cancelled", "expired"),
}


@dataclass(slots=True)
class ModelCart:
    """One cart of the model."""

    cart: Cart
    deadline_ms: int
    state: CartState = "open"
    refusal: LineRefusal | None = None


class CartModel:
    """Carts by home and id."""

    def __init__(self, clock: Clock, check_pool: Callable[[str], ModelPool]) -> None:
        """Create an empty set of carts; `check_pool` raises PoolMissing for a home that is not open."""
        self._clock = clock
        self._check_pool = check_pool
        self._carts: dict[tuple[str, str], ModelCart] = {}
        self._unfinished: dict[tuple[str, str], float] = {}

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.OpenCart: self.open,
            op.ReadCart: self.read,
            op.DecideCart: self.decide,
            op.FinishCart: self.finish,
            op.ListCarts: self.list_all,
            op.ListDueCarts: self.list_due,
            op.ScanCarts: self.scan,
            op.InspectCarts: self.inspect,
        }

    def open(self, operation: op.OpenCart) -> CartRecord:
        """Open a cart, or read a known one."""
        cart = operation.cart
        self._check_pool(cart.home)
        place = cart.home, cart.cart_id
        found = self._carts.get(place)
        if found is not None and found.cart != cart:
            raise mismatch_of(cart, found.cart)
        if found is None:
            deadline_ms = self._now_ms() + operation.hold_ms
            self._carts[place] = ModelCart(cart, deadline_ms)
            self._unfinished[place] = deadline_ms
        return self._record(place, replay=found is not None)

    def read(self, operation: op.ReadCart) -> CartRecord:
        """Read a cart."""
        place = self._found(operation.home, operation.cart_id)
        return self._record(place, replay=True)

    def decide(self, operation: op.DecideCart) -> CartRecord:
        """Change the state, if it may still change."""
        place = self._found(operation.home, operation.cart_id)
        found, state = self._carts[place], operation.state
        if state not in MAY_BECOME.get(found.state, ()) and not (found.state == "open" and operation.stored):
            return self._record(place, replay=True)
        if self._check_pool(operation.home).gated and not operation.stored:
            raise CartGated(*place)
        if state == "reserved" and found.deadline_ms <= self._now_ms():
            state = "expired"
        found.state, found.refusal = state, operation.refusal
        if state != "reserved":
            self._unfinished[place] = min(self._unfinished.get(place, inf), self._now_ms())
        return self._record(place, replay=False)

    def finish(self, operation: op.FinishCart) -> bool:
        """Note that the decision is carried out."""
        return self._unfinished.pop((operation.home, operation.cart_id), None) is not None

    def list_all(self, operation: op.ListCarts) -> UnfinishedCarts:
        """Read unfinished carts."""
        self._check_pool(operation.home)
        now_ms = self._now_ms()
        found = sorted((due_ms, place) for place, due_ms in self._unfinished.items() if place[0] == operation.home)
        carts = tuple(
            UnfinishedCart(self._record(place, replay=True), int(due_ms) - now_ms)
            for due_ms, place in found[: operation.limit]
        )
        return UnfinishedCarts(carts, len(found), sum(due_ms <= now_ms for due_ms, _ in found))

    def list_due(self, operation: op.ListDueCarts) -> tuple[CartRecord, ...]:
        """Read the carts to finish now."""
        self._check_pool(operation.home)
        now_ms = self._now_ms()
        due = sorted(
            (due_ms, place)
            for place, due_ms in self._unfinished.items()
            if place[0] == operation.home and due_ms <= now_ms
        )
        page = due[operation.skip : operation.skip + operation.limit]
        return tuple(self._record(place, replay=True) for _, place in page)

    # --- for the audit ---

    def scan(self, operation: op.ScanCarts) -> tuple[int, tuple[str, ...]]:
        """Read all ids at once."""
        places = self._carts if operation.key == "carts" else self._unfinished
        return 0, tuple(cart_id for home, cart_id in places if home == operation.home)

    def inspect(self, operation: op.InspectCarts) -> tuple[InspectedCart, ...]:
        """Read the raw record of each."""
        self._check_pool(operation.home)
        return tuple(self._inspected((operation.home, cart_id)) for cart_id in operation.cart_ids)

    def _inspected(self, place: tuple[str, str]) -> InspectedCart:
        found, is_unfinished = self._carts.get(place), place in self._unfinished
        if found is None:
            return InspectedCart(place[1], is_kept=False, is_unfinished=is_unfinished)
        return InspectedCart(place[1], is_kept=True, is_unfinished=is_unfinished, cart=found.cart, state=found.state)

    # --- for an archive ---

    def kept(self, home: str) -> tuple[dict[str, ModelCart], dict[str, int]]:
        """Return the carts that a pool keeps, and the times of the unfinished ones, by id."""
        carts = {cart_id: cart for (own, cart_id), cart in self._carts.items() if own == home}
        unfinished = {cart_id: int(due_ms) for (own, cart_id), due_ms in self._unfinished.items() if own == home}
        return carts, unfinished

    def remove(self, home: str, cart_id: str) -> None:
        """Remove a cart."""
        self._carts.pop((home, cart_id), None)
        self._unfinished.pop((home, cart_id), None)

    # --- helpers ---

    def _found(self, home: str, cart_id: str) -> tuple[str, str]:
        self._check_pool(home)
        if (home, cart_id) not in self._carts:
            raise CartUnknown(home, cart_id)
        return home, cart_id

    def _record(self, place: tuple[str, str], *, replay: bool) -> CartRecord:
        found = self._carts[place]
        return CartRecord(
            cart=found.cart,
            state=found.state,
            left_ms=max(0, found.deadline_ms - self._now_ms()),
            is_finished=place not in self._unfinished,
            refusal=found.refusal,
            replay=replay,
        )

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)
