"""A program that submits orders through the workers' own publisher, and dies at a named point if it is told to.

`python -m tests.support.workers.order_submitter CONTROL_FOLDER SKU DECIDES ORDER_ID ...`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from segmented.celery import publisher
from segmented.models import Order
from segmented.stock import Outbox, Pool
from segmented.stores.redis import RedisStore
from segmented.testing.control import Control
from segmented.testing.wrapping import put_points


def main(folder: str, sku: str, decides: str, *order_ids: str) -> None:
    put_points(Control(Path(folder)))
    with RedisStore.from_url(os.environ["SEGMENTED_URL"]) as store, publisher() as teller:
        pool = Pool(store, sku, outbox=Outbox(teller, decides))  # type: ignore[arg-type]  # checked there
        pool.submit_many(Order(order_id, 1) for order_id in order_ids)


if __name__ == "__main__":
    main(*sys.argv[1:])
