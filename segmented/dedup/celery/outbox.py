"""A transactional outbox for tasks of `Once`: a message is published if and only if your transaction commits.

`charge.once.publish_within(session, ...)` writes a row in the caller's transaction. After the commit, `tell()`
publishes it at once, and `relay_outbox`, called periodically, publishes what its process did not. A message that was
published and whose row was not deleted is published again under the same id, so the worker recognises the copy, for
`remember`.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from celery.utils import uuid
from kombu.exceptions import OperationalError
from kombu.utils import json
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT

from segmented.dedup.celery.message import text_of
from segmented.errors import InvalidInput, StoreError
from segmented.locks.durations import is_whole
from segmented.locks.sql_edge import is_in_autocommit, translated
from segmented.orders.tables import database_now
from segmented.orders.within import begun, connected

if TYPE_CHECKING:
    from celery import Celery
    from sqlalchemy import ColumnElement

log = logging.getLogger("segmented.dedup")
TABLES: Final = "segmented_once_outbox by create_outbox(engine)"
RELAYED_MAX: Final = 1_000

outbox_metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""
outbox = Table(
    "segmented_once_outbox",
    outbox_metadata,
    Column("message", String(64), primary_key=True),
    Column("body", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
    # Those that failed come last, so that a message of an unknown task holds up no other.
    Column("failures", BigInteger, nullable=False, server_default="0"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message in the outbox, not published yet."""

    id: str
    """The id that the message will have: `charge.AsyncResult(outgoing.id)` is its handle."""
    app: Celery
    engine: object

    def tell(self) -> bool:
        """Publish the message, after the commit. Returns False if this has to be left to `relay_outbox`.

        Publishes nothing, and returns False, if the transaction has not committed. Errors of the broker are logged.
        """
        return isinstance(self.engine, Engine) and _relayed(self.app, self.engine, outbox.c.message == self.id, 1) == 1


def create_outbox(engine: Engine) -> None:
    """Create the table unless it exists."""
    with translated("the outbox of tasks"):
        outbox_metadata.create_all(engine)


def relay_outbox(app: Celery, engine: Engine, *, limit: int = RELAYED_MAX) -> int:
    """Publish up to `limit` committed messages, oldest first, and return how many. Call it every few seconds.

    Any number of processes may do so at once. A message that cannot be published stays, is logged, and comes last.
    """
    if not is_whole(limit) or limit < 1:
        raise InvalidInput(f"the limit of {limit!r} messages is wrong: give a whole number of 1 or more")
    return _relayed(app, engine, outbox.c.message.is_not(None), limit)


def write(
    plan: Any,  # noqa: ANN401  # an OncePlan, whose module imports that of `publish_within`
    transaction: object,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Outgoing:
    """Write a message of a task in a caller's transaction. Raises InvalidInput, and TypeError as the call would."""
    plan.identity(arguments, options)  # an unusual argument fails here, not when nobody waits for it
    message = uuid()
    text = text_of(plan.app, plan.name, plan.as_sent(arguments, options), {"task_id": message})
    if not text:
        raise InvalidInput(f"the arguments of {plan.name!r} cannot be written as JSON, which publish_within needs")
    found = transaction if isinstance(transaction, Connection) else None
    with ExitStack() as stack, translated(f"a message of {plan.name!r}", found, table=TABLES):
        connection, owner = connected(begun(transaction), stack)
        if is_in_autocommit(connection):
            raise InvalidInput("publish_within needs a transaction, and this connection is in autocommit: begin one")
        connection.execute(insert(outbox).values(message=message, body=text))
    return Outgoing(message, plan.app, owner)


def _relayed(app: Celery, engine: Engine, which: ColumnElement[bool], limit: int) -> int:
    """Publish messages that no other relay has locked, and delete those that were published."""
    order = (outbox.c.failures, outbox.c.created_at, outbox.c.message)
    wanted = select(outbox.c.message, outbox.c.body).where(which).order_by(*order).limit(limit)
    if engine.dialect.name == "postgresql":
        wanted = wanted.with_for_update(skip_locked=True)
    sent: list[str] = []
    failed: list[str] = []
    with translated("the outbox of tasks", table=TABLES), engine.begin() as connection:
        for message, text in connection.execute(wanted).all():
            try:
                _publish(app, text)
            except (OperationalError, OSError, StoreError):
                log.warning("the outbox cannot be published now; it is tried again", exc_info=True)
                break
            except Exception:  # such as an unknown task, or a route that is not one
                log.exception("message %s of the outbox cannot be published", message)
                failed.append(message)
            else:
                sent.append(message)
        if sent:
            connection.execute(delete(outbox).where(outbox.c.message.in_(sent)))
        if failed:
            more = update(outbox).where(outbox.c.message.in_(failed))
            connection.execute(more.values(failures=outbox.c.failures + 1))
    return len(sent)


def _publish(app: Celery, text: str) -> None:
    """Publish as Celery continues a chain: what would be refused is sent, and the worker decides about it.

    A message that the broker does not take keeps its key, since its row is published again.
    """
    form = json.loads(text)
    task, options = app.tasks[form["task"]], {**form["options"], "add_to_parent": False, "parent_id": None}
    task.apply_async(form["args"], form["kwargs"], **options)
