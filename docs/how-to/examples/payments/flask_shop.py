# flask_shop.py
"""A shop that takes payments, with Flask.

SHOP_REDIS, SHOP_DATABASE and SHOP_PROVIDER are the URLs of the stock server, the database and the payment provider.
"""

import os
from typing import Any

from flask import Flask, request
from invoices import Base, Invoice
from provider import Provider
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from segmented import Gate, Order, Pool, RedisStore, SegmentedError, StoreUnavailable

engine = create_engine(os.environ["SHOP_DATABASE"])
Base.metadata.create_all(engine)
store, gate, provider = RedisStore(os.environ["SHOP_REDIS"]), Gate(engine), Provider(os.environ["SHOP_PROVIDER"])
pools = {sku: Pool(store, sku, gate=gate) for sku in ("poster", "mug")}
shop = Flask(__name__)


def settle(payment: dict[str, Any]) -> None:
    """Sell the order of a payment, or give the money back: safe to repeat, at any time, also at the same time."""
    pool, order_id = pools[payment["sku"]], payment["order_id"]
    with Session(engine) as session, session.begin():
        sold = pool.confirm(order_id, within=session)
        if sold and not sold.replay:
            session.add(Invoice(sku=pool.sku, order_id=order_id, payment_id=payment["id"], units=sold.quantity))
        invoice = session.get(Invoice, (pool.sku, order_id))
        units = invoice.units if invoice and invoice.payment_id == payment["id"] else 0
    sold.tell()
    if units < payment["units"]:  # the order is not sold, was paid twice, or has fewer units
        provider.refund(payment["id"], payment["units"] - units, key="not sold")


@shop.post("/webhooks")
def hear() -> dict[str, str]:
    event = provider.event(request.data, request.headers.get("Signature"))
    if event["type"] == "payment.paid":  # a payment that failed changes nothing: the customer may try another card
        settle(event)
    return {}


@shop.post("/reconcile")
def reconcile() -> dict[str, int]:
    """Settle the payments of which no webhook came. Run it every few minutes."""
    return {"payments": len([settle(payment) for payment in provider.paid()])}


@shop.post("/orders")
def order() -> tuple[dict[str, Any], int]:
    sku, order_id, units = (request.get_json()[name] for name in ("sku", "order_id", "units"))
    reserved = pools[sku].reserve(Order(order_id, units), hold=900)
    return (provider.charge(sku, order_id, reserved.quantity), 201) if reserved else ({"no": reserved.describe()}, 409)


@shop.post("/change")
def change() -> dict[str, Any]:
    sku, order_id, units = (request.get_json()[name] for name in ("sku", "order_id", "units"))
    return provider.charge(sku, order_id, pools[sku].change(order_id, quantity=units).quantity)


@shop.post("/return")
def take_back() -> dict[str, int]:
    sku, order_id, units, return_id = (request.get_json()[name] for name in ("sku", "order_id", "units", "return_id"))
    returned = pools[sku].return_units(order_id, units, return_id=return_id)
    with Session(engine) as session:
        provider.refund(session.get_one(Invoice, (sku, order_id)).payment_id, returned.units, key=return_id)
    return {"kept": returned.quantity}


@shop.errorhandler(SegmentedError)
@shop.errorhandler(ValueError)
def refuse(error: Exception) -> tuple[dict[str, str], int]:
    return {"no": str(error)}, 503 if isinstance(error, StoreUnavailable) else 409
