# django_shop/urls.py
"""The shop's views."""

import json
import os
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django_shop.models import Invoice
from provider import Provider

from segmented import Order, Pool, SegmentedError, StoreUnavailable
from segmented.django import gate, store

provider = Provider(os.environ["SHOP_PROVIDER"])
pools = {sku: Pool(store(), sku, gate=gate()) for sku in ("poster", "mug")}


def settle(payment: dict[str, Any]) -> None:
    """Sell the order of a payment, or give the money back: safe to repeat, at any time, also at the same time."""
    pool, order_id = pools[payment["sku"]], payment["order_id"]
    with transaction.atomic():
        sold = pool.confirm(order_id, within=connection)
        transaction.on_commit(sold.tell)
        if sold and not sold.replay:
            Invoice.objects.create(sku=pool.sku, order_id=order_id, payment_id=payment["id"], units=sold.quantity)
        invoice = Invoice.objects.filter(sku=pool.sku, order_id=order_id, payment_id=payment["id"]).first()
        units = invoice.units if invoice else 0
    if units < payment["units"]:  # the order is not sold, was paid twice, or has fewer units
        provider.refund(payment["id"], payment["units"] - units, key="not sold")


def hear(request: HttpRequest) -> dict[str, Any]:
    event = provider.event(request.body, request.headers.get("Signature"))
    if event["type"] == "payment.paid":  # a payment that failed changes nothing: the customer may try another card
        settle(event)
    return {}


def reconcile(_: HttpRequest) -> dict[str, Any]:
    """Settle the payments of which no webhook came. Run it every few minutes."""
    return {"payments": len([settle(payment) for payment in provider.paid()])}


def order(request: HttpRequest) -> dict[str, Any]:
    sku, order_id, units = (json.loads(request.body)[name] for name in ("sku", "order_id", "units"))
    reserved = pools[sku].reserve(Order(order_id, units), hold=900)
    if not reserved:
        raise ValueError(reserved.describe())
    return provider.charge(sku, order_id, reserved.quantity)


def change(request: HttpRequest) -> dict[str, Any]:
    sku, order_id, units = (json.loads(request.body)[name] for name in ("sku", "order_id", "units"))
    return provider.charge(sku, order_id, pools[sku].change(order_id, quantity=units).quantity)


def answering(call: Callable[[HttpRequest], dict[str, Any]]) -> Callable[[HttpRequest], JsonResponse]:
    def view(request: HttpRequest) -> JsonResponse:
        try:
            return JsonResponse(call(request))
        except (SegmentedError, ValueError) as error:
            return JsonResponse({"no": str(error)}, status=503 if isinstance(error, StoreUnavailable) else 409)

    return view


views = {"webhooks": hear, "reconcile": reconcile, "orders": order, "change": change}
urlpatterns = [path(name, answering(call)) for name, call in views.items()]
