"""Envelopes of a pool that names its workers while, or before, another worker takes them."""

import threading
from dataclasses import replace

from segmented import Order, Pool, RedisStore, protocol as op
from segmented.models import Assignment
from segmented.orders.envelopes import EnvelopeReport, WorkTerms, take_envelope
from segmented.servers import ValkeyServer
from segmented.stock import Outbox
from tests.support.proxy import RedisProxy

SKU = "mug"
ORDERS = tuple(f"o{number:03}" for number in range(250))
LONG = WorkTerms(ttl=600, work=600)
OWN = replace(LONG, assignment=Assignment("concerts"))


def opened(store: RedisStore) -> Pool:
    pool = Pool(store, SKU, outbox=Outbox(decides="in the worker", publish_after=600))
    pool.open(stock=500, segments=1)
    pool.submit_many(Order(order_id, 1) for order_id in ORDERS)
    return pool


def test_a_pool_that_names_others_meanwhile_gets_its_orders_and_segment_back(
    valkey: ValkeyServer,
) -> None:
    """A worker takes 250 orders: 200 and then, when the pool names another queue, the rest."""
    with (
        RedisStore.from_url(valkey.url) as ours,
        RedisProxy(valkey.url) as proxy,
        RedisStore.from_url(proxy.url) as theirs,
    ):
        pool = opened(ours)
        found: list[EnvelopeReport] = []
        proxy.hold_next(rb"\$3\r\n200\r\n")  # in the second step: how many orders the first one took
        worker = threading.Thread(
            target=lambda: found.append(take_envelope(Pool(theirs, SKU), ORDERS, step=lambda _: None, terms=LONG))
        )
        worker.start()
        assert proxy.holding.wait(60)
        assert sum(order.worker != "" for order in ours.execute(op.ReadSubmitted(SKU, ORDERS))) == 200
        pool.assign(queue="concerts", step=None)
        proxy.let_go()
        worker.join(60)
        (report,) = found
        assert (len(report.put_off), report.counts()["put_off"], report.settled) == (250, 250, [])
        assert not any(order.worker for order in ours.execute(op.ReadSubmitted(SKU, ORDERS)))
        assert take_envelope(pool, ORDERS, step=lambda _: None, terms=OWN).counts() == {"settled": 250}
