"""The check of messages passes whatever Celery itself publishes, and names what is wrong with anything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from celery import Celery, chain, chord, group
from kombu.exceptions import DecodeError

from segmented.celery.apps import TASK_MODULES
from segmented.celery.readable import Unreadable, check_message
from tests.support.workers.forged import BODIES

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False, include=TASK_MODULES)
    made.conf.task_default_queue = f"shop-{uuid4()}"  # the broker is the process's

    @made.task(name="shop.add", shared=False)
    def add(first: int, second: int) -> int:
        return first + second

    made.loader.import_default_modules()
    yield made
    made.close()


def messages(app: Celery) -> list[Any]:
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        found = []
        while (message := channel.basic_get(app.conf.task_default_queue, no_ack=True)) is not None:
            message.accept = {"application/json"}
            found.append(message)
    return found


def published(app: Celery) -> Any:  # noqa: ANN401  # a message whose fields are changed
    app.send_task("segmented.take_envelope", ({"v": 1, "sku": "mug", "orders": ["a"]},))
    (message,) = messages(app)
    return message


@pytest.mark.parametrize("protocol", [1, 2])
def test_whatever_celery_publishes_is_readable(app: Celery, protocol: int) -> None:
    app.conf.task_protocol = protocol
    add: Any = app.tasks["shop.add"]
    add.delay(1, 2)
    add.apply_async((1,), {"second": 2}, countdown=90_000, expires=100_000, time_limit=5, soft_time_limit=2.5)
    add.apply_async((1, 2), link=[add.s(3), chain(add.s(4), add.s(5))], link_error=add.si(0, 0), priority=3)
    add.apply_async((1, 2), retries=7, shadow="addition", headers={"tenant": 7}, ignore_result=True)
    chain(add.s(1, 2), add.s(3), group(add.s(4), add.s(5)), add.si(6, 7)).apply_async()
    chord([add.s(1, 2), add.s(3, 4)], add.si(5, 6)).apply_async()
    group(add.s(1, 2), add.s(3, 4)).apply_async()
    if protocol == 2:
        signature: Any = add.s(1, 2)
        signature.stamp(batch="7")
        signature.apply_async()
    found = messages(app)
    assert len(found) == {1: 9, 2: 10}[protocol]
    for message in found:
        check_message(message)


def test_any_arguments_of_take_envelope_pass_since_the_task_reads_them_itself(app: Celery) -> None:
    for arguments, named in (((), {}), ((1, 2, 3), {"sku": "mug"})):
        app.send_task("segmented.take_envelope", arguments, named)
    app.send_task("segmented.sweep", (1,))  # which takes none
    first, second, third = messages(app)
    task: Any = app.tasks["segmented.take_envelope"]
    check_message(first, task)
    check_message(second, task)
    with pytest.raises(Unreadable, match=r"^its arguments are not those of segmented\.sweep: too many positional"):
        check_message(third, app.tasks["segmented.sweep"])


def test_messages_of_our_tasks_are_readable(app: Celery) -> None:
    app.send_task("segmented.take_order", ("mug", "a", 1), {"customer_id": "ann"}, countdown=10, retries=5)
    app.send_task("segmented.take_order", ("mug", "a", 1, None), link=app.tasks["shop.add"].s(1))
    app.conf.task_time_limit = 20.0
    app.tasks["segmented.sweep"].apply_async()  # as beat does: its message has the limit
    app.send_task("segmented.sweep", time_limit=1)
    found = messages(app)
    assert len(found) == 4
    for message in [*found, published(app)]:
        check_message(message, app.tasks[message.headers["task"]])


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"countdown": 7_200}, "waits up to 3,600 s"),
        ({"retries": 6}, "it has 6 retries: segmented.take_order has up to 5"),
        ({"time_limit": 0.5}, "it sets a time limit of [0.5, None]: 1 s is the least"),
        ({"soft_time_limit": 0.5}, "it sets a time limit of [None, 0.5]: 1 s is the least"),
        ({"kwargs": {"more": 1}}, "its arguments are not those of segmented.take_order: got an unexpected keyword"),
    ],
)
def test_a_message_of_our_tasks_that_could_hold_up_a_worker_is_not(
    app: Celery, options: dict[str, Any], wrong: str
) -> None:
    app.send_task("segmented.take_order", ("mug", "a", 1), **options)
    (message,) = messages(app)
    check_message(message)
    with pytest.raises(Unreadable) as caught:
        check_message(message, app.tasks["segmented.take_order"])
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("task", 7, "its header 'task' is 7: it must be a text"),
        ("id", [], "its header 'id' is []: it must be a text"),
        ("retries", -5, "its header 'retries' is -5: it must be a whole number of up to 2,147,483,648 or null"),
        ("timelimit", [-1, None], "its header 'timelimit' is [-1, None]: it must be a list of two numbers above 0"),
        ("eta", "9999-12-31T23:59:59", "it must be a time in ISO 8601 or null"),
        ("callbacks", [5], "its header 'callbacks' is [5]: it must be a list of tasks or null"),
        ("get", 1, "its header 'get' has a name that Celery uses for itself"),
        ("_children", 1, "its header '_children' has a name that Celery uses for itself"),
    ],
)
def test_a_header_of_a_wrong_type_is_named(app: Celery, name: str, value: object, wrong: str) -> None:
    message = published(app)
    message.headers[name] = value
    with pytest.raises(Unreadable) as caught:
        check_message(message)
    assert wrong in str(caught.value)


def test_a_missing_header_is_named(app: Celery) -> None:
    message = published(app)
    del message.headers["id"]
    with pytest.raises(Unreadable, match=r"^it has no header 'id'$"):
        check_message(message)


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_a_body_of_another_shape_is_unreadable(app: Celery, body: object) -> None:
    message = published(app)
    message.body = json.dumps(body).encode()
    with pytest.raises(Unreadable, match=r"^its |^the third part of its body "):
        check_message(message)


def test_a_body_that_cannot_be_decoded_is_unreadable(app: Celery) -> None:
    message = published(app)
    message.body = b"\xff{"
    with pytest.raises(Unreadable, match=r"^it cannot be decoded: ") as caught:
        check_message(message)
    assert isinstance(caught.value.__cause__, DecodeError)


@pytest.mark.parametrize("name", ["stamps", "headers", "tenant"])
def test_a_header_that_is_nested_too_deeply_is_not_passed_on(app: Celery, name: str) -> None:
    message = published(app)
    message.headers[name] = {"a": json.loads("[" * 98 + "]" * 98)}
    check_message(message)
    message.headers[name] = {"a": json.loads("[" * 110 + "]" * 110)}
    with pytest.raises(Unreadable, match=r"^it has more than 100 lists and objects inside one another$"):
        check_message(message)


@pytest.mark.parametrize("depth", [98, 110])
def test_an_argument_that_is_nested_too_deeply_is_not_passed_on(app: Celery, depth: int) -> None:
    app.send_task("shop.add", (json.loads("[" * depth + "]" * depth), 2))
    (message,) = messages(app)
    if depth == 98:
        check_message(message)
        return
    with pytest.raises(Unreadable, match=r"^it has more than 100 lists and objects inside one another$"):
        check_message(message)
