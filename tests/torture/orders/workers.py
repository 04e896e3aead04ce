"""The processes of a run: Celery workers, beat, and the submitter of the orders."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from segmented.errors import SegmentedError
from segmented.models import Order, SoldOut
from segmented.models.submitted import Deciding
from segmented.stock import Outbox, Pool
from segmented.stock.order_handle import OrderHandle
from segmented.stores.redis import RedisStore
from tests.torture.event_log import LogWriter, order_id
from tests.torture.orders.options import quantity_of
from tests.torture.supervisor import wait_for_end

PAGE: Final = 200
"""Orders in a page."""
OPTIONS: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")


def be_worker(pipe: Connection, name: str) -> None:
    """Take messages until the supervisor asks for the end."""
    _when_asked(pipe, lambda: signal.raise_signal(signal.SIGTERM))
    sys.argv = ["workers"]

    from segmented.celery.app import app  # noqa: PLC0415  # its settings come from the environment

    app.worker_main(["worker", *OPTIONS, "--hostname", f"{name}@torture"])


def be_beat(pipe: Connection) -> None:
    """Schedule the sweep until the supervisor asks for the end."""
    _when_asked(pipe, lambda: os._exit(0))

    from segmented.celery.app import app  # noqa: PLC0415  # as above

    app.start(argv=["beat", "--loglevel", "WARNING", "--pidfile="])


def _when_asked(pipe: Connection, end: Callable[[], object]) -> None:
    def wait() -> None:
        wait_for_end(pipe)
        end()

    threading.Thread(target=wait, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Submission:
    """The orders to submit."""

    url: str
    sku: str
    decides: Deciding
    order_count: int
    seed: int
    log: str


def be_submitter(pipe: Connection, submission: Submission) -> None:
    """Submit the orders. Each word of the supervisor is the number of the last one that may be submitted."""
    import tests.torture.orders.instrumentation  # noqa: F401, PLC0415  # it logs what is published
    from segmented.celery import publisher  # noqa: PLC0415  # its settings come from the environment

    outbox = Outbox(publisher(), submission.decides)
    with RedisStore.from_url(submission.url) as store, publisher():
        submit_all(submission, Pool(store, submission.sku, outbox=outbox), pipe)


def submit_all(submission: Submission, pool: Pool, pipe: Connection) -> None:
    """Submit the orders page by page; the answers of a page are on disk before the next page."""
    writer = LogWriter(Path(submission.log))
    done = 0
    while done < submission.order_count:
        try:
            upto = pipe.recv()
            while pipe.poll():
                upto = pipe.recv()
        except EOFError:
            break
        while done < min(upto, submission.order_count):
            last = min(done + PAGE, upto)
            orders = [
                Order(order_id(number), quantity_of(number, submission.seed)) for number in range(done + 1, last + 1)
            ]
            handles = pool.submit_many(orders)
            writer.write(*(_line(done + 1 + index, order, handles[index]) for index, order in enumerate(orders)))
            writer.sync()
            done = last
    writer.close()


def _line(number: int, order: Order, answer: OrderHandle | SegmentedError) -> str:
    if isinstance(answer, SegmentedError):
        raise answer
    if isinstance(answer.outcome, SoldOut):
        return f"f {number} {order.quantity}"
    if answer.state not in {"queued", "reserved", "confirmed"}:
        raise SegmentedError(f"order {order.order_id} was answered {answer.outcome or answer.state}")
    return f"a {number} {order.quantity}"
