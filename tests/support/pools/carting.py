"""Plans of carts cut into single steps, for tests in which a process dies between any two of them."""

from collections.abc import Callable
from typing import Any

from segmented.models import Cart, CartReserved
from segmented.plans import Plan
from segmented.stock.carts import cancel_cart_plan, confirm_cart_plan, reserve_cart_plan
from tests.support.sim.simulator import scattered


def reserved_and_ended(cart: Cart, end: str, hold_ms: int) -> Plan[object]:
    """Reserve a cart, and confirm or cancel it if it is reserved; returns the last answer."""
    answer: object = yield from reserve_cart_plan(cart, hold_ms, {})
    if isinstance(answer, CartReserved) and end != "forget":
        plan = confirm_cart_plan if end == "confirm" else cancel_cart_plan
        answer = yield from plan(cart.home, cart.cart_id)
    return answer


def ending_before(plan: Plan[Any], step: int, end: Callable[[], None]) -> Plan[Any]:
    """Call `end` before effect number `step`, from 1, and go on as a dead process does: not at all."""
    reply: Any = None
    plan = scattered(plan)
    for _ in range(step - 1):
        try:
            effect = plan.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = yield effect
    try:
        plan.send(reply)
    except StopIteration as stop:
        return stop.value
    plan.close()
    end()
    return None
