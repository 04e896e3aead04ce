"""Messages that no worker can read: they are kept, and the worker serves the next order."""

import base64
import json
from copy import deepcopy
from random import Random
from typing import Any, Final, cast

import pytest

from segmented import protocol as op
from segmented.celery.messages import TASK
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.long_run import in_the_long_run
from tests.support.sim.seeds import seed_of_run
from tests.support.workers.forged import DEEP, forged, nested
from tests.support.workers.order_floor import IN_WORKER, QUEUE, OrderSystem
from tests.support.workers.selling import until

DEPTH_MAX: Final = 3
TEXTS: Final = (
    "",
    "x",
    "segmented.take_envelope",
    "segmented.take_order",
    "\u202e",
    "\x00",
    "9" * 400,
    "{}",
    "null",
    "\ud800",
)
NUMBERS: Final = (0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, float("inf"), float("nan"))


def fuzzed(random: Random, sent: dict[str, Any]) -> bytes:
    """Return the message with one to four pieces of damage."""
    item = deepcopy(sent)
    body = json.loads(base64.b64decode(item["body"]))
    parts = {"item": item, "body": body}
    for _ in range(random.randint(1, 4)):
        _damage(random, parts[random.choice(("item", "item", "body"))])
    if "body" in item and random.random() < 0.8:  # else the damaged text stays as it is
        item["body"] = base64.b64encode(json.dumps(body).encode()).decode()
    text = json.dumps(item).encode()
    if random.random() < 0.1:  # bytes, seldom: hardly any of these is JSON
        place = random.randrange(len(text))
        text = text[:place] + bytes([random.randrange(256)]) + text[place + random.randint(0, 20) :]
    return text


def _damage(random: Random, whole: Any) -> None:  # noqa: ANN401  # anything that JSON has
    """Change, remove or add a value somewhere in it."""
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.3:  # mostly deeper
            break
        place = inner
    match random.randrange(4):
        case 0 if isinstance(place, dict):
            del place[key]
        case 1 if isinstance(place, dict):
            place[random.choice((*TEXTS[:4], "eta", "expires", "callbacks", "timelimit", "v"))] = _value(random, 0)
        case 2 if isinstance(place, list):
            place.insert(random.randrange(len(place) + 1), _value(random, 0))
        case _:
            place[key] = _value(random, 0)


def _value(random: Random, depth: int) -> Any:  # noqa: ANN401  # as above
    kind = random.randrange(6 if depth < DEPTH_MAX else 4)
    if kind == 0:
        return random.choice((None, True, False))
    if kind == 1:
        return random.choice(NUMBERS)
    if kind in {2, 3}:
        return random.choice(TEXTS)
    some = [_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return some if kind == 4 else dict(zip(random.sample(TEXTS[:9], len(some)), some, strict=True))  # a list


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


def kept(system: OrderSystem) -> int:
    return len(system.pool.store.execute(op.ListMessages(QUEUE)))


def test_messages_that_cannot_be_read_are_kept_and_the_next_order_is_served(
    open_system: OrderSystemFactory,
) -> None:
    system = open_system(IN_WORKER)
    worker = system.worker()
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


def test_an_order_that_cannot_be_read_keeps_none_of_its_envelope_from_being_finished(
    open_system: OrderSystemFactory,
) -> None:
    system = open_system(IN_WORKER)
    worker = system.worker()
    system.publisher.close()  # from now on only this test notifies workers
    bodies = []
    for number, wrong in enumerate((None, 7, "", "\n", "x" * 300, ["a"])):
        first, last = f"first-{number}", f"last-{number}"
        system.submit([(first, 1), (last, 1)])
        bodies.append({"v": 1, "sku": system.pool.sku, "orders": [first, wrong, last]})
        system.app.send_task(TASK, (bodies[-1],), queue=QUEUE)
    system.until_decided(sweeping=False)
    until(lambda: kept(system) == len(bodies))
    found = [json.loads(message.text) for message in system.pool.store.execute(op.ListMessages(QUEUE))]
    assert sorted(found, key=str) == sorted(([[body], {}] for body in bodies), key=str)
    assert worker.is_running
    system.check()


# Forged messages of every kind: none ends or silences a worker, each is kept, and the orders beside them go on.


KINDS: Final = 222


@pytest.mark.parametrize("pool", ["threads", *in_the_long_run("prefork", "solo")])
def test_forged_messages_of_222_kinds_end_no_worker_and_each_next_order_is_decided(
    open_system: OrderSystemFactory, pool: str
) -> None:
    system = open_system(IN_WORKER)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    items = list(forged(sent, system.pool.sku))
    for number, (_, item) in enumerate(items):
        system.messages.lpush(QUEUE, item)
        system.submit([(f"good-{number}", 1)])
        system.until_decided(sweeping=False)
    until(lambda: system.in_hand() == 0)
    assert (len(items), len(system.pool.store.execute(op.ListMessages(QUEUE)))) == (KINDS, KINDS)
    assert worker.is_running
    assert worker.stop() == 0
    system.check()


@pytest.mark.parametrize("pool", ["prefork", *in_the_long_run("threads", "solo")])
def test_nested_messages_take_no_place_of_a_worker_and_each_is_kept(open_system: OrderSystemFactory, pool: str) -> None:
    """The process that reads the queue fails to pass some to a child; Celery then counts a child as busy forever."""
    system = open_system(IN_WORKER)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    items = list(nested(sent))
    for number, (_, item) in enumerate(items):
        system.messages.lpush(QUEUE, item)
        system.submit([(f"good-{number}", 1)])
    system.until_decided(sweeping=False)
    until(lambda: system.in_hand() == 0)
    assert (len(items), len(system.pool.store.execute(op.ListMessages(QUEUE)))) == (6 * len(DEEP), 6 * len(DEEP))
    assert worker.is_running
    assert worker.stop() == 0
    system.check()


# Messages with random damage, new in every run: no worker ends or hangs, and the orders beside them go on.


BETWEEN: Final = 25
"""Damaged messages between two orders."""


@pytest.mark.fuzz
@pytest.mark.parametrize(("pool", "messages"), [("threads", 100), *in_the_long_run(("prefork", 5_000))])
def test_messages_with_random_damage_end_no_worker_and_delay_no_order(
    open_system: OrderSystemFactory, pool: str, messages: int
) -> None:
    random = Random(seed_of_run())
    system = open_system(IN_WORKER, stock=10_000)
    system.send(system.pool.sku, ("a",))
    sent = json.loads(cast("bytes", system.messages.rpop(QUEUE)))
    worker = system.worker(pool=pool)
    for number in range(0, messages, BETWEEN):
        for each in range(BETWEEN):
            item = fuzzed(random, sent)
            system.messages.lpush(
                QUEUE, item.replace(sent["properties"]["delivery_tag"].encode(), f"{number}-{each}".encode())
            )
        system.submit([(f"good-{number}", 1)])
        system.until_decided(sweeping=False)
    until(lambda: system.messages.llen(QUEUE) == 0)
    until(lambda: system.in_hand() == 0)
    assert worker.is_running
    assert worker.stop() == 0
    system.check()
