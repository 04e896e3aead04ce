"""Messages of `Once` that are published if and only if a transaction commits, with a broker in memory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.signals import before_task_publish
from kombu.exceptions import OperationalError
from sqlalchemy import Engine, create_engine, func, insert, select
from sqlalchemy.orm import Session

from segmented import MemoryStore
from segmented.dedup.celery import Once, create_outbox, latest, outbox_metadata, relay_outbox, serial, unique
from segmented.dedup.celery.message import OnceHeader
from segmented.dedup.celery.outbox import outbox
from segmented.errors import InvalidInput, StoreError
from segmented.models.dedup import RunBegun


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    create_outbox(made)
    yield made
    made.dispose()


@pytest.fixture
def app() -> Iterator[Celery]:
    with closing(Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)) as made:
        made.conf.update(once_store=MemoryStore())
        yield made


@pytest.fixture
def published() -> Iterator[list[str]]:
    """The ids of the messages that reach the broker."""
    found: list[str] = []

    def note(headers: dict[str, Any], **_: object) -> None:
        found.append(headers["id"])

    before_task_publish.connect(note)
    yield found
    before_task_publish.disconnect(note)


def charge(order_id: str, amount: object = 1) -> str:
    return f"{order_id}: {amount}"


def task_of(app: Celery, once: object, name: str = "charge") -> Any:  # noqa: ANN401  # a task
    return app.task(base=Once, name=name, once=once, lazy=False, shared=False)(charge)


def left(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(outbox)).scalar_one()


def _refuse(*_: object, **__: object) -> None:
    raise OperationalError("no broker")


RULES = [unique("{order_id}", keep=60), serial("{order_id}"), latest("{order_id}")]


@pytest.mark.parametrize("once", RULES, ids=lambda rule: rule.kind)
def test_a_message_is_published_once_its_transaction_has_committed_and_not_before(
    app: Celery, engine: Engine, published: list[str], once: object
) -> None:
    task = task_of(app, once)
    with Session(engine) as session, session.begin():
        outgoing = task.once.publish_within(session, "o-7", amount=5)
        rolled = session.begin_nested()
        task.once.publish_within(session, "o-8")
        rolled.rollback()
    assert published == []
    assert relay_outbox(app, engine) == 1
    assert (published, left(engine), relay_outbox(app, engine)) == ([outgoing.id], 0, 0)


def test_tell_publishes_after_the_commit_alone_and_a_rollback_publishes_nothing(
    app: Celery, engine: Engine, published: list[str]
) -> None:
    task = task_of(app, unique("{order_id}"))
    with engine.connect() as connection:
        connection.begin()
        outgoing = task.once.publish_within(connection, "o-7")
        connection.rollback()
        assert outgoing.tell() is False
    with engine.begin() as connection:
        outgoing = task.once.publish_within(connection, "o-7")
    assert [outgoing.tell(), outgoing.tell()] == [True, False]
    assert (published, relay_outbox(app, engine)) == ([outgoing.id], 0)


def test_a_message_that_cannot_be_published_holds_up_no_other(
    app: Celery, engine: Engine, published: list[str]
) -> None:
    task = task_of(app, unique("{order_id}"))
    gone = '{"task": "gone", "args": [], "kwargs": {}, "options": {}, "subtask_type": null, "immutable": false}'
    with engine.begin() as connection:
        connection.execute(insert(outbox).values(message="0", body=gone))
        outgoing = task.once.publish_within(connection, "o-7")
    assert [relay_outbox(app, engine, limit=1) for _ in range(2)] == [0, 1]
    assert (published, left(engine)) == ([outgoing.id], 1)


def test_a_message_that_the_broker_did_not_take_can_begin_once_it_is_back(
    app: Celery, engine: Engine, published: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failed publication does not cancel it, as that of a call does, whose caller gets an error."""
    task = task_of(app, unique("{order_id}", keep=60))
    with engine.begin() as connection:
        outgoing = task.once.publish_within(connection, "o-7")
    with monkeypatch.context() as broken:
        broken.setattr(app.amqp, "send_task_message", _refuse)
        assert (outgoing.tell(), relay_outbox(app, engine)) == (False, 0)
    assert (relay_outbox(app, engine), published, left(engine)) == (1, [outgoing.id], 0)
    found = task.once_plan.identity(("o-7",), {})
    claim = task.once_plan.claim(OnceHeader(outgoing.id, found.key, found.payload_print))
    assert isinstance(app.conf.once_store.execute(claim.beginning(found.payload_print)), RunBegun)


def test_a_call_that_publication_would_refuse_is_left_to_the_worker(
    app: Celery, engine: Engine, published: list[str]
) -> None:
    task = task_of(app, unique("{order_id}"))
    first = task.delay("o-7", 5)
    with engine.begin() as connection:
        outgoing = task.once.publish_within(connection, "o-7", 6)
    assert outgoing.tell() is True
    assert published == [first.id, outgoing.id]


def test_what_the_outbox_cannot_hold_is_refused_in_one_sentence(app: Celery, engine: Engine) -> None:
    task = task_of(app, unique("{order_id}"))
    with Session(engine) as session:
        with pytest.raises(InvalidInput, match="the arguments of 'any' cannot be written as JSON, which publish_w"):
            task_of(app, unique("{order_id}", payload=False), "any").once.publish_within(session, "o-7", object())
        with pytest.raises(TypeError):
            task.once.publish_within(session, "o-7", 1, 2)
        outbox_metadata.drop_all(engine)
        with pytest.raises(StoreError, match="segmented_once_outbox"):
            task.once.publish_within(session, "o-7")
    with pytest.raises(InvalidInput, match="not a Session or Connection of SQLAlchemy"):
        task.once.publish_within(engine, "o-7")
    with pytest.raises(InvalidInput, match="the limit of 0 messages is wrong: give a whole number of 1 or more"):
        relay_outbox(app, engine, limit=0)
