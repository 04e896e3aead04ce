"""The process that submits orders: `python -m bench.proof.orders_torture.submitter`, controlled through standard input.

The first line is its assignment; each further line is the number of the last order that it may submit. It exits when
the input ends.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.proof.orders_torture.event_log import LogWriter, order_id
from bench.proof.orders_torture.options import quantity_of
from segmented.errors import SegmentedError
from segmented.models import Order, SoldOut
from segmented.stock import Outbox, Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.models.submitted import Deciding
    from segmented.stock.order_handle import OrderHandle

PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class SubmitterAssignment:
    """The submitter's assignment."""

    url: str
    sku: str
    decides: Deciding
    order_count: int
    seed: int
    log: str

    def as_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> SubmitterAssignment:
        """Read it from its line."""
        found: dict[str, Any] = json.loads(line)
        return cls(**found)


class _Allowance:
    """The last order that the submitter may submit; a thread reads it."""

    def __init__(self) -> None:
        self._upto = 0
        self._is_over = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def beyond(self, done: int) -> int:
        """Wait until more orders may be submitted; return the last one, or `done` if the input has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._upto > done or self._is_over)
            return done if self._is_over else self._upto

    def _read(self) -> None:
        for line in sys.stdin:
            with self._changed:
                self._upto = int(line)
                self._changed.notify()
        with self._changed:
            self._is_over = True
            self._changed.notify()


def submit_all(assignment: SubmitterAssignment, pool: Pool, allowance: _Allowance) -> None:
    """Submit the orders page by page; the answers of a page are on disk before the next page."""
    writer = LogWriter(Path(assignment.log))
    done = 0
    while done < assignment.order_count:
        upto = min(allowance.beyond(done), assignment.order_count)
        if upto == done:
            break
        while done < upto:
            last = min(done + PAGE, upto)
            orders = [
                Order(order_id(number), quantity_of(number, assignment.seed)) for number in range(done + 1, last + 1)
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
        message = f"order {order.order_id} was answered {answer.outcome or answer.state}"
        raise SegmentedError(message)
    return f"a {number} {order.quantity}"


def main() -> None:
    """Submit the orders of the assignment, and exit."""
    import bench.proof.orders_torture.instrumentation  # noqa: F401, PLC0415  # it logs what is published
    from segmented.celery import publisher  # noqa: PLC0415  # its settings come from the environment

    assignment = SubmitterAssignment.from_json(sys.stdin.readline())
    outbox = Outbox(publisher(), assignment.decides)
    with RedisStore.from_url(assignment.url) as store, publisher():
        submit_all(assignment, Pool(store, assignment.sku, outbox=outbox), _Allowance())


if __name__ == "__main__":
    main()
