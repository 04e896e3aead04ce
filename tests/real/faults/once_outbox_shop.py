"""A publisher that stores an order and its message in one transaction, and is killed at a named point.

`python -m tests.real.faults.once_outbox_shop DATABASE_URL POINT`: POINT is `before commit`, `after commit` or
`never`; a point of `tests.support.workers.once_app` kills it as well.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

from sqlalchemy import Column, MetaData, String, Table, create_engine, insert
from sqlalchemy.orm import Session

from tests.support.workers.once_app import app

KEY: Final = "o-7"
orders = Table("orders", MetaData(), Column("order_id", String(50), primary_key=True))


def main(database_url: str, point: str) -> None:
    task: Any = app.tasks["unique"]
    with Session(create_engine(database_url)) as session:
        session.execute(insert(orders).values(order_id=KEY))
        outgoing = task.once.publish_within(session, KEY, 1)
        if point == "before commit":
            os.kill(os.getpid(), signal.SIGKILL)
        session.commit()
        if point == "after commit":
            os.kill(os.getpid(), signal.SIGKILL)
        outgoing.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
