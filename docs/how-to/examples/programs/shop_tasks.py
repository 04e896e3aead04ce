"""A Celery app of one's own: it sells in its workers, and sends each receipt once.

SHOP_BROKER and SHOP_RECORDS are URLs of Redis databases, SEGMENTED_URL is that of the stock server, another one, and
SEGMENTED_DATABASE that of the order database. Run a worker with: celery -A shop_tasks worker --beat
Install: pip install '.[workers,postgres]' in the checkout.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from celery import Celery

from segmented import Outbox, Pool, RedisStore, Settled
from segmented.celery import add_tasks, publisher
from segmented.dedup.celery import Once, unique

if TYPE_CHECKING:
    from segmented.stock import OrderHandle

app = Celery("shop_tasks", broker=os.environ["SHOP_BROKER"])
app.conf.update(once_url=os.environ["SHOP_RECORDS"], task_acks_late=True, task_reject_on_worker_lost=True)
add_tasks(app)


@app.task(base=Once, once=unique("{order_id}", keep="1d"))
def send_receipt(order_id: str, address: str) -> str:
    """Send a receipt, once for each order, however often the task is published or delivered."""
    with open(os.environ["SHOP_OUTGOING"], "a", encoding="utf-8") as outgoing:
        print(order_id, address, file=outgoing)
    return address


def buy(store: RedisStore, order_id: str, *, quantity: int = 1) -> OrderHandle:
    """Accept an order: one round trip, and nothing is lost afterwards. A worker finishes it."""
    pool = Pool(store, "poster", outbox=Outbox(publisher(app)))
    return pool.submit(order_id, quantity=quantity)


def receipt_for(handle: OrderHandle, address: str) -> bool:
    """Wait for the order's outcome; send the receipt if it is sold."""
    outcome = handle.wait(timeout=30)
    if isinstance(outcome, Settled):
        send_receipt.delay(handle.order_id, address)
    return isinstance(outcome, Settled)
