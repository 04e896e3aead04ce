"""A shop that takes each payment in a child of its own, and says how that ended.

Arguments: the stock's server, the order database, and which of PAYMENTS confirms the orders. A line of standard input
has an order and a number: the child is killed at that point, one of those before and after each statement and commit.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import django
import psycopg
from django.conf import settings
from django.db import connection as django_connection, transaction
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.orm import Session

from segmented import Order, Outbox, Pool, RedisStore
from segmented.orders import Gate, take_envelope

INVOICE: Final = "INSERT INTO invoices (order_id) VALUES (%s)"
INVOICES: Final = text("INSERT INTO invoices (order_id) VALUES (:id)")


class Points:
    """Counts the points that a child reaches; the last one kills it."""

    def __init__(self, last: int) -> None:
        self._left = last

    def reach(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(Engine, name, self.reach)


def pay_in_session(pool: Pool, engine: Engine, order_id: str, points: Points) -> None:
    pool.reserve(order_id)
    points.watch()
    with Session(engine) as session, session.begin():
        sold = pool.confirm(order_id, within=session)
        session.execute(INVOICES, {"id": order_id})
    points.reach()
    sold.tell()


def pay_in_django(pool: Pool, engine: Engine, order_id: str, points: Points) -> None:
    url = engine.url
    place = {"NAME": url.database, "USER": url.username or "", "HOST": url.query.get("host", "")}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **place}})
    django.setup()

    def each(execute: Callable[..., Any], *words: object) -> object:
        points.reach()
        try:
            return execute(*words)
        finally:
            points.reach()

    pool.reserve(order_id)
    points.watch()
    with django_connection.execute_wrapper(each), transaction.atomic():
        sold = pool.confirm(order_id, within=django_connection)
        with django_connection.cursor() as cursor:
            cursor.execute(INVOICE, [order_id])
        transaction.on_commit(points.reach)
        transaction.on_commit(sold.tell)


def pay_in_psycopg(pool: Pool, engine: Engine, order_id: str, points: Points) -> None:
    pool.reserve(order_id)
    points.watch()
    with psycopg.connect(engine.url.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        sold = pool.confirm(order_id, within=connection)
        points.reach()
        connection.execute(INVOICE, [order_id])
        points.reach()
        connection.commit()
        points.reach()
        sold.tell()


def pay_in_envelope(pool: Pool, _: Engine, order_id: str, points: Points) -> None:
    gate = pool.gate
    assert isinstance(gate, Gate)
    confirm_many = gate.confirm_many

    def store_with(connection: Connection, orders: Sequence[Order]) -> None:
        connection.execute(INVOICES, [{"id": one.order_id} for one in orders])

    def stored(*words: Any, **named: Any) -> object:  # noqa: ANN401  # as the gate's own
        answers = confirm_many(*words, **named)
        points.reach()
        return answers

    gate.confirm_many = stored  # type: ignore[method-assign, assignment]  # a point more
    pool.submit(order_id)
    points.watch()
    take_envelope(pool.plain, [order_id], gate=gate, store_with=store_with)


PAYMENTS: Final[Mapping[str, Callable[[Pool, Engine, str, Points], None]]] = {
    "session": pay_in_session,
    "django": pay_in_django,
    "psycopg": pay_in_psycopg,
    "envelope": pay_in_envelope,
}


def main() -> None:
    server, database, name = sys.argv[1:]
    engine = create_engine(database)
    for line in sys.stdin:
        order_id, last = line.split()
        if os.fork() == 0:
            pool = Pool(RedisStore.from_url(server), "mug", gate=Gate(engine), outbox=Outbox())
            PAYMENTS[name](pool, engine, order_id, Points(int(last)))
            return
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.wait()[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
