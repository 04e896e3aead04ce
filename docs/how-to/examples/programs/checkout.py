"""A checkout: a request takes a unit, charges the customer under the lock of a segment, and confirms the order.

SHOP_REDIS is the URL of the stock server. Serve it with: flask --app checkout run
Install: pip install . flask in the checkout.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flask import Flask, request

import segmented
from segmented.errors import GrantLost

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue


class CardDeclined(Exception):
    """The customer was not charged."""


class PaymentTimeout(Exception):
    """The payment provider did not answer: nobody knows yet whether the customer was charged."""


store = segmented.RedisStore(os.environ["SHOP_REDIS"])
pool = segmented.Pool(store, "poster", hold=600)
shop = Flask(__name__)


def charge(order_id: str, card: str) -> None:
    """Charge the customer. Here the order id would be the provider's idempotency key."""
    if card == "declined":
        raise CardDeclined(order_id)
    if card == "slow":
        raise PaymentTimeout(order_id)


@shop.post("/orders/<order_id>")
def check_out(order_id: str) -> ResponseReturnValue:
    """Sell one poster. A repeat of the request, such as a double click, gets the order's state."""
    answer = pool.grant(order_id, timeout=2, keep_on=PaymentTimeout)
    if isinstance(answer, segmented.Decided):
        return {"order": order_id, "state": answer.state}
    if not answer:
        return {"order": order_id, "refused": answer.describe()}, 503 if isinstance(answer, segmented.Busy) else 409
    try:
        with answer:
            charge(order_id, request.get_json()["card"])
    except CardDeclined:  # the unit is free again
        return {"order": order_id, "state": "cancelled"}, 402
    except PaymentTimeout:  # the unit stays reserved until the provider tells, or the hold ends
        return {"order": order_id, "state": "reserved"}, 202
    except GrantLost:  # charged, but the hold had ended: give the money back
        return {"order": order_id, "state": "expired"}, 410
    return {"order": order_id, "state": "confirmed"}, 201


@shop.post("/payments/<order_id>")
def hear_of_payment(order_id: str) -> ResponseReturnValue:
    """Take the provider's late answer."""
    try:
        settled = pool.confirm(order_id) if request.get_json()["charged"] else pool.cancel(order_id)
    except segmented.AlreadySettled as ended:
        return {"order": order_id, "state": ended.state}, 409
    return {"order": order_id, "state": settled.state}


@shop.errorhandler(segmented.SegmentedError)
def refuse(error: segmented.SegmentedError) -> ResponseReturnValue:
    """Answer to a request that cannot be served; while the server is away, the client sends the same order id again."""
    return {"refused": str(error)}, 503 if isinstance(error, segmented.StoreUnavailable) else 400
