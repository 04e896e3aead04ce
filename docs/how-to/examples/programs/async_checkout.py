"""The checkout for asyncio: a request takes a unit, charges the customer under a lock, and confirms the order.

SHOP_REDIS is the URL of the stock server. Install: pip install . fastapi uvicorn. Serve: uvicorn async_checkout:shop
"""

from __future__ import annotations

import asyncio
import os

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

import segmented
from segmented.errors import GrantLost


class CardDeclined(Exception):
    """The customer was not charged."""


class PaymentTimeout(Exception):
    """The payment provider did not answer: nobody knows yet whether the customer was charged."""


store = segmented.AsyncRedisStore(os.environ["SHOP_REDIS"])
pool = segmented.AsyncPool(store, "poster", hold=600)
shop = FastAPI()


async def charge(order_id: str, card: str) -> None:
    """Charge the customer. Here the order id would be the provider's idempotency key."""
    await asyncio.sleep(0.001)
    if card == "declined":
        raise CardDeclined(order_id)
    if card == "slow":
        raise PaymentTimeout(order_id)


def said(code: int, order_id: str, **more: str) -> Response:
    """Return an answer about an order."""
    return JSONResponse({"order": order_id, **more}, code)


@shop.post("/orders/{order_id}")
async def check_out(order_id: str, request: Request) -> Response:
    """Sell one poster. A repeat of the request, such as a double click, gets the order's state."""
    answer = await pool.grant(order_id, timeout=2, keep_on=PaymentTimeout)
    if isinstance(answer, segmented.Decided):
        return said(200, order_id, state=answer.state)
    if not answer:
        return said(503 if isinstance(answer, segmented.Busy) else 409, order_id, refused=answer.describe())
    try:
        async with answer:
            await charge(order_id, (await request.json())["card"])
    except CardDeclined:  # the unit is free again
        return said(402, order_id, state="cancelled")
    except PaymentTimeout:  # the unit stays reserved until the provider tells, or the hold ends
        return said(202, order_id, state="reserved")
    except GrantLost:  # charged, but the hold had ended: give the money back
        return said(410, order_id, state="expired")
    return said(201, order_id, state="confirmed")


@shop.post("/payments/{order_id}")
async def hear_of_payment(order_id: str, request: Request) -> Response:
    """Take the provider's late answer."""
    is_charged: bool = (await request.json())["charged"]
    try:
        settled = await (pool.confirm(order_id) if is_charged else pool.cancel(order_id))
    except segmented.AlreadySettled as ended:
        return said(409, order_id, state=ended.state)
    return said(200, order_id, state=settled.state)


@shop.exception_handler(segmented.SegmentedError)
async def refuse(request: Request, error: Exception) -> Response:
    """Answer to a request that cannot be served; while the server is away, the client sends the same order id again."""
    is_away = isinstance(error, segmented.StoreUnavailable)
    return JSONResponse({"path": request.url.path, "refused": str(error)}, 503 if is_away else 400)
