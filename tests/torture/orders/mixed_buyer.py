"""The buyers of `torture orders --mix`. One that was killed begins again with the orders that it has not logged."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from segmented.errors import AlreadySettled, StoreError, TransactionConflict
from segmented.models import Decided, Order, Reserved, SoldOut
from segmented.models.submitted import BegunOrder
from segmented.orders import Decline, Gate
from segmented.stock import Outbox, Pool
from tests.torture.event_log import LogTail, LogWriter, number_of, order_id
from tests.torture.supervisor import connected

EVERY: Final = 7


def is_declined(number: int) -> bool:
    """Return whether the customer's card is refused."""
    return number % EVERY == 0


def decide(begun: BegunOrder) -> None:
    """Charge the customer."""
    if is_declined(number_of(begun.order.order_id)):
        reason = "card refused"
        raise Decline(reason)


AnswerT = TypeVar("AnswerT")

RETURNED: Final = "returned"
KINDS: Final = ("submitted",) * 3 + ("paid",) * 3 + ("changed", "abandoned", RETURNED, "late")
HOLD: Final = 3.0
LATE_HOLD: Final = 0.5
LATER: Final = 20
"""Late orders that a buyer has reserved before it pays the first: some have expired by then."""
PATIENCE: Final = 90.0
PAUSE: Final = 0.1
INVOICE: Final = text("INSERT INTO invoices (sku, order_id, units) VALUES (:sku, :order_id, :units)")


def kind_of(number: int) -> str:
    """Return what becomes of an order."""
    return KINDS[number % len(KINDS)]


def units_of(number: int) -> int:
    """Return the units of an order: 1 to 3, and 2 or 3 for one that gives a unit back."""
    return 2 + number // 10 % 2 if kind_of(number) in {"changed", RETURNED} else 1 + number // 10 % 3


def kept_units(number: int) -> int:
    """Return the units that the order has in the end, if it is sold."""
    return units_of(number) - (kind_of(number) in {"changed", RETURNED})


@dataclass(frozen=True, slots=True)
class Buying:
    """The orders of a buyer: each `step`-th one from `first` on."""

    url: str
    database: str
    sku: str
    first: int
    step: int
    last: int
    log: str


def be_buyer(_: Connection, buying: Buying) -> None:
    """Buy, and log what came of each order."""
    from segmented.celery import publisher  # noqa: PLC0415  # its settings come from the environment

    done = {int(line.split(" ")[0]) for line in LogTail(Path(buying.log)).lines()}
    engine = create_engine(buying.database)
    writer = LogWriter(Path(buying.log))
    with connected(buying.url) as store, Gate(engine) as gate, publisher() as sender:
        buyer = _Buyer(Pool(store, buying.sku, gate=gate, outbox=Outbox(sender)), engine)
        late: deque[int] = deque()
        for number in range(buying.first, buying.last + 1, buying.step):
            if number in done:
                continue
            if kind_of(number) == "late":
                buyer.patiently(buyer.reserve, number)
                late.append(number)
            else:
                writer.write(f"{number} {buyer.patiently(buyer.buy, number)}")
            if len(late) > LATER:
                writer.write(f"{late[0]} {buyer.patiently(buyer.buy, late.popleft())}")
        for number in late:
            writer.write(f"{number} {buyer.patiently(buyer.buy, number)}")
    writer.close()


class _Buyer:
    def __init__(self, pool: Pool, engine: Engine) -> None:
        self._pool = pool
        self._engine = engine

    def patiently(self, act: Callable[[int], AnswerT], number: int) -> AnswerT:
        """Do something with an order, again while a server is away."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return act(number)
            except (StoreError, TransactionConflict):
                if time.monotonic() > until:
                    raise
                time.sleep(PAUSE)

    def reserve(self, number: int) -> bool:
        """Reserve units; return whether the order is known then, reserved or decided."""
        order = Order(order_id(number), units_of(number))
        answer = self._pool.reserve(order, hold=LATE_HOLD if kind_of(number) == "late" else HOLD)
        return isinstance(answer, Reserved | Decided)

    def buy(self, number: int) -> str:
        """Buy one order; return what came of it."""
        kind, order = kind_of(number), Order(order_id(number), units_of(number))
        if kind == "submitted":
            return self._submitted(order)
        if kind != "late" and not self.reserve(number):
            return "refused"
        if kind == "abandoned":
            return "abandoned"
        if kind == "changed":
            self._changed(order)
        sold = self._webhook(order.order_id)
        if number % 2:  # the provider says it twice
            sold = self._webhook(order.order_id)
        if not sold:
            return "refunded"
        if number % 3:  # else nobody tells the pool
            sold.tell()
        if kind == RETURNED:
            self._pool.return_units(order.order_id, 1, return_id=f"r-{number}")
        return "sold"

    def _submitted(self, order: Order) -> str:
        handle = self._pool.submit(order)
        return "refused" if isinstance(handle.outcome, SoldOut) else "accepted"

    def _changed(self, order: Order) -> None:
        try:
            self._pool.change(order.order_id, quantity=order.quantity - 1)
        except AlreadySettled:  # an earlier life of this buyer has sold it, or its hold has ended
            return

    def _webhook(self, name: str) -> Any:  # noqa: ANN401  # a Sold
        with Session(self._engine) as session, session.begin():
            sold = self._pool.confirm(name, within=session)
            if sold and not sold.replay:
                session.execute(INVOICE, {"sku": self._pool.sku, "order_id": name, "units": sold.quantity})
        return sold
