"""Plans of carts cut into single steps, for tests in which a process dies between any two of them."""

from collections.abc import Callable
from typing import Any

from segmented.errors import SegmentedError
from segmented.models import Cart, CartReserved
from segmented.plans import Plan
from segmented.plans.effects import Batch
from segmented.stock.cart_plans import cancel_cart_plan, confirm_cart_plan, reserve_cart_plan


def one_by_one(plan: Plan[Any]) -> Plan[Any]:
    """Perform each operation of a batch as a step of its own: a batch goes to several servers."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value
        reply, failure = None, None
        try:
            if isinstance(effect, Batch):
                reply = []
                for operation in effect.operations:
                    try:
                        reply.append((yield operation))
                    except SegmentedError as error:
                        reply.append(error)
            else:
                reply = yield effect
        except SegmentedError as error:
            failure = error


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
    plan = one_by_one(plan)
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
