"""The `segmented orders` command line in this process, with a pool whose orders it shows and replays."""

import json
import subprocess
from typing import Any, Final

from segmented import protocol as op
from segmented.celery.settings import QUEUE
from segmented.models import Order
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support import command_line

SKU: Final = "mug"
WORKER: Final = "0f9c2d71aa44"
LONG_MS: Final = 600_000
REASON: Final = "ValueError: no such address"
MESSAGE: Final = '[[{"v": 2, "sku": "mug", "orders": ["order-52", "order-53"]}], {}]'
DIGESTS: Final = ("3fb1c7de0a45" + 20 * "0", "3fc2" + 28 * "1")


class OrderCommands:
    """A pool of 100 units, and the command line in this process."""

    def __init__(self, store: RedisStore, url: str) -> None:
        self.store, self.url = store, url
        self.pool = Pool(store, SKU)
        self.pool.open(stock=100, segments=2)

    def ran(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command_line.ran("orders", *words, url=self.url)

    def rows(self, *words: str) -> list[list[str]]:
        done = self.ran(*words)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def json(self, *words: str) -> Any:  # noqa: ANN401  # whatever the command found
        return json.loads(self.ran(*words, "--json", "-").stdout)

    def queue(self, order_id: str, sku: str = SKU, publish_after_ms: int = LONG_MS) -> None:
        self.store.execute(op.NotePool(sku, submits=True))
        self.store.execute(op.QueueOrders(sku, (Order(order_id, 2, "ann"),), publish_after_ms))

    def take(self, order_id: str, sku: str = SKU) -> None:
        self.store.execute(op.TakeOrders(sku, (order_id,), WORKER, LONG_MS, LONG_MS, LONG_MS, 5))

    def bury(self, order_id: str, sku: str = SKU, *, hold_ms: int = LONG_MS) -> None:
        self.queue(order_id, sku)
        self.give_up(order_id, sku, hold_ms=hold_ms)

    def give_up(self, order_id: str, sku: str = SKU, *, hold_ms: int = LONG_MS) -> None:
        self.take(order_id, sku)
        given_up = op.PutOff(
            sku, (order_id,), WORKER, LONG_MS, counts=True, begun_max=1, reason=REASON, hold_ms=hold_ms
        )
        self.store.execute(given_up)

    def keep(self, digest: str = DIGESTS[0], text: str = MESSAGE, queue: str = QUEUE) -> None:
        assert self.store.execute(op.KeepMessage(queue, digest, "the envelope has version 2", text))

    def dead_ids(self) -> list[str]:
        return sorted(found["order_id"] for found in self.json("dead")["orders"])
