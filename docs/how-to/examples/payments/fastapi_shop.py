# fastapi_shop.py
"""The same shop with FastAPI and asyncio."""

import asyncio
import os
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from invoices import Base, Invoice
from provider import Provider
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from segmented import AsyncGate, AsyncPool, AsyncRedisStore, Order, SegmentedError, StoreUnavailable

Base.metadata.create_all(create_engine(os.environ["SHOP_DATABASE"]))
engine = create_async_engine(os.environ["SHOP_DATABASE"])
store, gate = AsyncRedisStore(os.environ["SHOP_REDIS"]), AsyncGate(engine)
pools = {sku: AsyncPool(store, sku, gate=gate) for sku in ("poster", "mug")}
provider = Provider(os.environ["SHOP_PROVIDER"])
shop = FastAPI()


async def settle(payment: dict[str, Any]) -> None:
    """Sell the order of a payment, or give the money back: safe to repeat, at any time, also at the same time."""
    pool, order_id = pools[payment["sku"]], payment["order_id"]
    async with AsyncSession(engine) as session, session.begin():
        sold = await pool.confirm(order_id, within=session)
        if sold and not sold.replay:
            session.add(Invoice(sku=pool.sku, order_id=order_id, payment_id=payment["id"], units=sold.quantity))
        invoice = await session.get(Invoice, (pool.sku, order_id))
        units = invoice.units if invoice and invoice.payment_id == payment["id"] else 0
    await sold.tell()
    if units < payment["units"]:  # the order is not sold, was paid twice, or has fewer units
        await asyncio.to_thread(provider.refund, payment["id"], payment["units"] - units, key="not sold")


@shop.post("/webhooks")
async def hear(request: Request) -> dict[str, str]:
    event = provider.event(await request.body(), request.headers.get("Signature"))
    if event["type"] == "payment.paid":  # a payment that failed changes nothing: the customer may try another card
        await settle(event)
    return {}


@shop.post("/reconcile")
async def reconcile() -> dict[str, int]:
    """Settle the payments of which no webhook came. Run it every few minutes."""
    paid = await asyncio.to_thread(provider.paid)
    return {"payments": len([await settle(payment) for payment in paid])}


@shop.post("/orders")
async def order(asked: dict[str, Any]) -> Response:
    reserved = await pools[asked["sku"]].reserve(Order(asked["order_id"], asked["units"]), hold=900)
    if not reserved:
        return JSONResponse({"no": reserved.describe()}, 409)
    charged = await asyncio.to_thread(provider.charge, asked["sku"], asked["order_id"], reserved.quantity)
    return JSONResponse(charged, 201)


@shop.post("/extend")
async def extend(asked: dict[str, Any]) -> dict[str, int]:
    extended = await pools[asked["sku"]].extend(asked["order_id"], seconds=300)  # the customer is still typing
    return {"until_ms": extended.hold_until_ms}


@shop.exception_handler(SegmentedError)
@shop.exception_handler(ValueError)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"no": str(error)}, 503 if isinstance(error, StoreUnavailable) else 409)
