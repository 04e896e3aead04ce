"""Messages that no worker can read: they are kept, and the worker serves the next order."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from segmented import protocol as op
from segmented.celery.messages import TASK
from tests.support.long_run import in_the_long_run
from tests.support.workers.order_floor import AT_ONCE, IN_WORKER, QUEUE
from tests.support.workers.selling import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.order_floors import OrderSystemFactory
    from tests.support.workers.order_floor import OrderSystem

HUGE: Final = "x" * 5_000_000
ENVELOPES: Final[dict[str, Any]] = {
    "a newer version": {"v": 2, "sku": "mug", "orders": ["a"]},
    "no version": {"sku": "mug", "orders": ["a"]},
    "a version that is not a number": {"v": True, "sku": "mug", "orders": ["a"]},
    "no object": "mug",
    "a sku that is no text": {"v": 1, "sku": 7, "orders": ["a"]},
    "orders that are no list": {"v": 1, "sku": "mug", "orders": {"a": 1}},
    "an order that is no text": {"v": 1, "sku": "mug", "orders": [None]},
    "orders that are no text": {"v": 1, "sku": "mug", "orders": [None, 7]},
    "no orders": {"v": 1, "sku": "mug", "orders": []},
    "too many orders": {"v": 1, "sku": "mug", "orders": ["a"] * 1_001},
    "a field too many": {"v": 1, "sku": "mug", "orders": ["a"], "more": 1},
    "a pool that nobody opened": {"v": 1, "sku": "nothing", "orders": ["a"]},
    "five megabytes": {"v": 1, "sku": HUGE, "orders": ["a"]},
}
RAW: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a body that is no JSON": lambda sent: {**sent, "body": base64.b64encode(b"\xff{garbage").decode()},
    "a body that is no base64": lambda sent: {**sent, "body": "\u20ac"},
    "a body that is a number": lambda sent: {**sent, "body": base64.b64encode(b"7").decode()},
    "a body with too little": lambda sent: {**sent, "body": base64.b64encode(b"[[]]").decode()},
    "arguments that are no list": lambda sent: {**sent, "body": base64.b64encode(b"[1, {}, null]").decode()},
    "an unknown content": lambda sent: {**sent, "content-type": "application/x-python-serialize"},
    "no task's name": lambda sent: {**sent, "headers": {}, "body": base64.b64encode(b"[[2], {}, null]").decode()},
}


def kept(system: OrderSystem) -> int:
    return len(system.pool.store.execute(op.ListMessages(QUEUE)))


@pytest.mark.parametrize("pool", ["threads", *in_the_long_run("prefork")])
def test_messages_that_cannot_be_read_are_kept_and_the_next_order_is_served(
    open_system: OrderSystemFactory, pool: str
) -> None:
    system = open_system(IN_WORKER)
    worker = system.worker(pool=pool)
    for body in ENVELOPES.values():
        system.app.send_task(TASK, (body,), queue=QUEUE)
    system.app.send_task(TASK, (), queue=QUEUE)
    system.app.send_task(TASK, (ENVELOPES["a newer version"], 1), queue=QUEUE)
    system.app.send_task(TASK, kwargs={"envelope": 1}, queue=QUEUE)
    system.app.send_task("segmented.nothing", ("a",), queue=QUEUE)
    system.submit([("next", 1)])
    system.until_decided(sweeping=False)
    until(lambda: kept(system) == len(ENVELOPES) + 4)
    assert max(len(one.text) for one in system.pool.store.execute(op.ListMessages(QUEUE))) <= 64 * 1024
    until(lambda: system.in_hand() == 0)
    assert worker.is_running
    system.check()


@pytest.mark.parametrize("pool", ["threads", *in_the_long_run("prefork")])
def test_messages_that_are_not_even_celerys_are_kept_and_end_no_worker(
    open_system: OrderSystemFactory, pool: str
) -> None:
    system = open_system(IN_WORKER)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    for number, damage in enumerate(RAW.values()):
        tag = {"properties": {**sent["properties"], "delivery_tag": f"tag-{number}"}}
        system.messages.lpush(QUEUE, json.dumps(damage({**sent, **tag})))
    system.submit([("next", 1)])
    system.until_decided(sweeping=False)
    until(lambda: kept(system) == len(RAW))
    until(lambda: system.in_hand() == 0)
    assert worker.is_running
    system.check()


@pytest.mark.parametrize("wrong", [None, 7, "", "\n", "x" * 300, ["a"]], ids=repr)
def test_an_order_that_cannot_be_read_keeps_none_of_its_envelope_from_being_finished(
    open_system: OrderSystemFactory, wrong: object
) -> None:
    system = open_system(IN_WORKER)
    worker = system.worker()
    system.publisher.close()  # from now on only this test notifies workers
    system.submit([("first", 1), ("last", 1)])
    body = {"v": 1, "sku": system.pool.sku, "orders": ["first", wrong, "last"]}
    system.app.send_task(TASK, (body,), queue=QUEUE)
    system.until_decided(sweeping=False)
    until(lambda: kept(system) == 1)
    (message,) = system.pool.store.execute(op.ListMessages(QUEUE))
    assert json.loads(message.text) == [[body], {}]
    assert worker.is_running
    system.check()


def test_a_message_that_names_an_order_which_nobody_submitted_confirms_nothing(open_system: OrderSystemFactory) -> None:
    system = open_system(AT_ONCE)
    system.worker()
    system.pool.reserve("reserved", quantity=3)
    system.submit([("submitted", 1)])
    system.send(system.pool.sku, ("reserved",))
    system.submit([("next", 1)])
    system.until_decided(sweeping=False)
    until(lambda: system.in_hand() == 0)
    assert (system.pool.state().reserved, system.pool.state().confirmed) == (3, 2)
    system.pool.cancel("reserved")
    system.check()
