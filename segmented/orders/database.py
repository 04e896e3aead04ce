"""The durable gate: the order database makes the final decision on every order.

docs/explanation/durable-gate.md explains why it is needed and how it works.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from sqlalchemy import URL, Engine, delete, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from segmented.errors import (
    DatabaseUnavailable,
    GrantSuperseded,
    InvalidInput,
    NotConfirmed,
    SegmentedError,
    StoreRefused,
)
from segmented.locks.sql_edge import BROKEN, is_unbroken, mark_begun
from segmented.models import EPOCH_MAX, SEGMENT_COUNT_MAX, STOCK_MAX, Order, plain_text, shortened
from segmented.models.submitted import one_line
from segmented.orders.answers import AlreadyOpen, Confirmed, Opened, Superseded, Voided
from segmented.orders.confirming import ENVELOPE_MAX, Confirming, StoreWith
from segmented.orders.deciding import Claim, fate
from segmented.orders.engine import GUARDED, STATEMENTS, connect, is_worth_repeating, shown, translated
from segmented.orders.return_rows import ReturnRows
from segmented.orders.statements import (
    order_values,
    read_confirmed_after,
    read_confirmed_units,
    read_names,
    read_orders,
    read_orders_after,
    read_sold,
    read_standing,
    read_totals,
)
from segmented.orders.stocking import Stocking, TransferRows
from segmented.orders.tables import (
    CONFIRMED,
    SKU_LENGTH_MAX,
    VOID,
    create_missing,
    known_revision,
    missing_tables,
    orders as orders_table,
    random_id,
    sales,
    segments,
)
from segmented.plans.store_kinds import NotPickled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from segmented.orders.answers import ChangeRow, ConfirmAnswer, OrderRow, SegmentTotals, VoidAnswer

PAGE_SIZE: Final = 1_000

AnswerT = TypeVar("AnswerT")
AskedT = TypeVar("AskedT")


class OrderDatabase(NotPickled):
    """Conditional writes in the order database: one row per segment, one per order. Thread-safe.

    It is correct even if Redis is wrong: a segment never sells more than its quota, an order has one final state, and a
    holder that a later fencing token has overtaken changes nothing. Every call raises DatabaseUnavailable if the
    database does not answer in time; the change may have happened then, and a repeat of the call finds out.
    """

    def __init__(self, database: Engine | AsyncEngine | str) -> None:
        """Use the database at a URL, or an engine made by `connect`, which takes options; `close` disposes of it.

        Of an engine of your own, sync or async, only the URL is used: the gate opens connections of its own there, with
        the deadlines and checks of `connect`. Raises InvalidInput for another release's tables.
        """
        engine = connect(database) if isinstance(database, str) else _guarded(database)
        self._engine = engine
        self._is_closed = False
        self.where: Final = f"the order database {shown(engine.url)}"
        """Name of the database in messages, without secrets."""
        self._statements = STATEMENTS[engine.dialect.name]()
        self.begin = self._statements.begin
        """Opens a transaction on a connection of this database."""
        self.confirming = Confirming(self._statements)
        """Confirms one order on a connection: the gate's own, or the caller's."""
        self.stocking = Stocking(self)
        """Changes the rows when the pool is restocked, emptied or resized."""
        self.transfers = TransferRows(self)
        """The rows of two shards, when units go from one to the other."""
        self.returns = ReturnRows(self)
        """The rows of returns."""
        try:
            self.run(lambda connection: known_revision(connection, self.where))
        except BaseException:
            self.close()
            raise

    def create(self) -> None:
        """Create missing tables. Safe to repeat, also concurrently. Raises InvalidInput for those of other releases."""

        def work(connection: Connection) -> None:
            with self._statements.creating(connection):
                known_revision(connection, self.where)
                create_missing(connection)
                connection.commit()

        self.run(work)

    def missing_tables(self) -> tuple[str, ...]:
        """Return the names of the missing tables: all before the first `create`, none when the gate can work."""
        return self.run(missing_tables)

    def open(self, sku: str, quotas: Sequence[int], epoch: int = 1) -> Opened | AlreadyOpen:
        """Store one row per segment, each with its quota.

        A sku that has rows keeps them, whatever the quotas given now, and the answer has them: compare its stock and
        number of segments with yours. `restock_pool`, `withdraw_pool` and `resize_pool` change them.
        """
        sku = plain_text(sku)
        _check_opening(sku, quotas, epoch)
        rows = [
            {"sku": sku, "segment": segment, "quota": quota, "epoch": epoch} for segment, quota in enumerate(quotas)
        ]

        def work(connection: Connection) -> Opened | AlreadyOpen:
            found = read_totals(connection, sku)
            if found.segments:
                return _already_open(found)
            try:
                connection.exec_driver_sql(self.begin)
                connection.execute(insert(segments), rows)
                connection.execute(delete(sales).where(sales.c.sku == sku))  # of rows that were deleted by hand
                connection.execute(insert(sales).values(sku=sku, sale_id=random_id()))
                connection.commit()
            except IntegrityError:
                connection.rollback()
                found = read_totals(connection, sku)
                if not found.segments:  # another constraint failed
                    raise
                return _already_open(found)
            return Opened(sum(quotas), len(quotas), epoch)

        return self.run(work)

    def confirm(  # noqa: PLR0913  # each is a column of the order or its authority, and given by name
        self,
        *,
        order_id: str,
        sku: str,
        segment: int,
        quantity: int,
        epoch: int,
        fence: int | None = None,
        customer_id: str | None = None,
        asked: int | None = None,
        sequence: int = 0,
    ) -> ConfirmAnswer:
        """Make the order final: take its units from the segment's row and store it, both or neither.

        With the fencing token of a grant, a later grant's token refuses it; without one (a reservation) orders of a
        segment may be confirmed in any order. A full segment gets quota from the others first. On PostgreSQL this is
        one round trip, unless quota has to move or the answer is not a first Confirmed. For a partial order, `asked` is
        the quantity it asked for: the stored quantity may then be any up to that. `sequence` is the pool's
        change that took the units, by which a later loss is noticed. Raises OrderMismatch.
        """
        order = Order(order_id, quantity, customer_id)
        return self.confirm_claim(Claim(order, sku, segment, epoch, fence, asked, sequence))

    def confirm_claim(self, claim: Claim) -> ConfirmAnswer:
        """Do what `confirm` does, for an order with all its fields."""
        return self.run(lambda connection: self.confirming.confirm(connection, claim))

    def confirm_many(
        self, claims: Iterable[Claim], *, store_with: StoreWith | None = None
    ) -> list[ConfirmAnswer | SegmentedError]:
        """Make up to 1,000 orders of one sku final, each as if alone and in this order, in one transaction.

            gate.confirm_many([Claim(Order("o-1", 1), "mug", segment=3, epoch=1, fence=token)])

        Returns one answer for each claim, in their order; a failure that `confirm` would have raised takes its answer's
        place. An id that occurs twice is a repeat. On PostgreSQL one order takes one round trip, more orders take five;
        if a segment has too few units, six more, and all rows of the sku are locked until the end. If the database
        refuses a value of some order, they are confirmed one by one. After DatabaseUnavailable the same call finds what
        was stored.

        `store_with(connection, orders)` is called in the transaction, with the orders that it stores: its rows and
        theirs are stored together, or neither. If it fails, each order is tried alone, and StoreRefused is the answer
        of those for which it fails again.
        """
        envelope = tuple(claims)
        _check_envelope(envelope)
        if not envelope:
            return []
        if len(envelope) == 1:
            return [self._confirmed(envelope[0], store_with)]  # in one statement if that is enough
        answers, of_some_order = None, (InvalidInput,) if store_with is None else (InvalidInput, StoreRefused)
        with suppress(*of_some_order):  # the error does not say which
            answers = self.run(lambda connection: self.confirming.confirm_many(connection, envelope, store_with))
        return [self._confirmed(claim, store_with) for claim in envelope] if answers is None else list(answers)

    def _confirmed(self, claim: Claim, store_with: StoreWith | None) -> ConfirmAnswer | SegmentedError:
        def work(connection: Connection) -> ConfirmAnswer | SegmentedError:
            if store_with is None:
                return self.confirming.confirm(connection, claim)
            (answer,) = self.confirming.confirm_many(connection, [claim], store_with) or (None,)
            return answer or StoreRefused(f"order {claim.order.order_id!r} was decided by others again and again")

        try:
            return self.run(work)
        except DatabaseUnavailable:
            raise
        except SegmentedError as error:
            return error

    @contextmanager
    def transaction(  # noqa: PLR0913  # as for `confirm`
        self,
        *,
        order_id: str,
        sku: str,
        segment: int,
        quantity: int,
        epoch: int,
        fence: int | None = None,
        customer_id: str | None = None,
        asked: int | None = None,
        sequence: int = 0,
    ) -> Iterator[Connection]:
        """Confirm the order together with the caller's statements: all of it happens, or nothing.

            with gate.transaction(order_id="o-1", sku="mug", segment=3, quantity=1, epoch=1, fence=token) as connection:
                connection.execute(insert(invoices), {"order_id": "o-1"})

        The body runs after the units are taken, so no later refusal can undo its work. The rows of segment and order
        stay locked until it ends: other transactions that need them wait, and fail at their deadline. Raises
        GrantSuperseded, or NotConfirmed for every other answer, including a replay, or OrderMismatch; the body does not
        run then. Raises StoreRefused if the transaction ended within the body, by a failed statement whose error the
        body handled, or by its own commit or rollback.
        """
        claim = Claim(Order(order_id, quantity, customer_id), sku, segment, epoch, fence, asked, sequence)
        with ExitStack() as stack:
            with translated(self.where):
                connection = stack.enter_context(self._engine.connect())
                stack.callback(self._end_use, connection)
                answer = _repeated(lambda: self.confirming.begin_confirmed(connection, claim))
            if isinstance(answer, Superseded):
                raise GrantSuperseded(order_id, answer.fence)
            if answer != Confirmed(replay=False):
                raise NotConfirmed(order_id, answer)
            with translated(self.where):
                mark_begun(connection)
            yield connection
            with translated(self.where):
                if not is_unbroken(connection):
                    connection.rollback()
                    row = read_orders(connection, sku=sku, order_ids=[order_id])
                    raise StoreRefused(f"order {order_id!r} is {row[0].state if row else 'not stored'}: {BROKEN}")
                connection.commit()

    def void(
        self, *, order_id: str, sku: str, quantity: int, asked: int | None = None, reason: str | None = None
    ) -> VoidAnswer:
        """Decide that the order is never confirmed. Call it before its units are returned; only one of the two can win.

        Waits for a concurrent confirm of the same order. The row keeps the `reason`, up to 200 characters of one line.
        Raises OrderMismatch.
        """
        order = Order(order_id, quantity)
        values = order_values(sku, order, None if reason is None else one_line(reason))

        def work(connection: Connection) -> VoidAnswer:
            if self._statements.void(connection, values):
                return Voided(replay=False)
            return fate(order, read_standing(connection, values), asked)

        return self.run(work)

    def void_many(self, sku: str, orders: Iterable[Order]) -> bool:
        """Void orders that have no row, in one statement; False, with nothing written, if one of them has a row."""
        content = {"sku": plain_text(sku), "state": VOID}
        rows = [
            content | {"order_id": order.order_id, "quantity": order.quantity}
            for order in sorted(orders, key=lambda order: order.order_id.encode())
        ]

        def work(connection: Connection) -> bool:
            connection.exec_driver_sql(self.begin)
            try:
                connection.execute(insert(orders_table), rows)
            except IntegrityError:
                connection.rollback()
                return False
            connection.commit()
            return True

        return self.run(work)

    def while_undecided(self, sku: str, order_id: str, segment: int, ask: Callable[[], AskedT]) -> AskedT | None:
        """Return what `ask` returns, which no confirm of the order overtakes; None if the database has decided it.

        Waits for transactions that are confirming orders of its segment, and they wait for this call.
        """
        sku = plain_text(sku)
        values = {"given_sku": sku, "given_order_id": plain_text(order_id)}

        def work(connection: Connection) -> AskedT | None:
            connection.exec_driver_sql(self.begin)
            self._statements.lock_these(connection, sku, [segment])
            answer = None if self._statements.has_order(connection, values) else ask()
            connection.rollback()
            return answer

        return self.run(work)

    def lower(self, sku: str, order_id: str, quantity: int, epoch: int) -> None:
        """Lower the quantity of an order that was confirmed in this epoch with more, and return the other units.

        For an order that was changed in the pool while it was being confirmed with what it had before. One that an
        earlier epoch sold, or that the pool has forgotten, keeps its units: those of the pool are others.
        """
        sku = plain_text(sku)
        self.write(lambda connection: lower_within(connection, sku, order_id, quantity, epoch))

    def is_decided(self, sku: str, order_id: str) -> bool:
        """Return whether the database has decided the order: it is sold, or void."""
        values = {"given_sku": plain_text(sku), "given_order_id": plain_text(order_id)}
        return self.run(lambda connection: self._statements.has_order(connection, values))

    def orders(self, sku: str, order_ids: Iterable[str]) -> dict[str, OrderRow]:
        """Read the existing orders among these ids, by id."""
        found: dict[str, OrderRow] = {}
        sku, ids = plain_text(sku), map(plain_text, order_ids)
        while chunk := list(islice(ids, PAGE_SIZE)):
            rows = self.run(partial(read_orders, sku=sku, order_ids=chunk))
            found |= {row.order_id: row for row in rows}
        return found

    def sold_among(self, sku: str, order_ids: Sequence[str]) -> set[str]:
        """Return which of up to 1,000 orders are confirmed."""
        return self.run(partial(read_sold, sku=plain_text(sku), order_ids=order_ids))

    def note_forgotten(self, sku: str, order_ids: Sequence[str]) -> None:
        """Note that the pool no longer answers for up to 1,000 confirmed orders: their epoch is 0 from then on."""
        chosen = (orders_table.c.sku == sku, orders_table.c.order_id.in_(sorted(order_ids)))
        sold = (orders_table.c.state == CONFIRMED, orders_table.c.epoch > 0)
        statement = update(orders_table).where(*chosen, *sold).values(epoch=0)
        self.run(lambda connection: connection.execute(statement))

    def each_order(self, sku: str, *, after: str = "", page_size: int = PAGE_SIZE) -> Iterator[OrderRow]:
        """Read the orders of a sku behind `after`, sorted by their ids' bytes, in pages, each a separate read."""
        return self._each(read_orders_after, sku, page_size, lambda row: row.order_id, after)

    def each_confirmed(self, sku: str) -> Iterator[tuple[str, int]]:
        """Read id and units of the confirmed orders of a sku, sorted by their ids' bytes, in pages."""
        return self._each(read_confirmed_after, sku, 10 * PAGE_SIZE, lambda row: row[0])

    def _each(
        self,
        read: Callable[..., list[AnswerT]],
        sku: str,
        page_size: int,
        id_of: Callable[[AnswerT], str],
        last: str = "",
    ) -> Iterator[AnswerT]:
        while True:
            page = self.run(partial(read, sku=sku, order_id=last, page_size=page_size))
            yield from page
            if len(page) < page_size:
                return
            last = id_of(page[-1])

    def totals(self, sku: str) -> SegmentTotals:
        """Read a sku's segment rows, and the identity of its sale, in one step."""
        return self.run(lambda connection: read_totals(connection, sku))

    def sales(self) -> list[str]:
        """Read the names of all sales, sorted: skus, and those of shards."""
        names = select(sales.c.sku).order_by(sales.c.sku)
        return self.run(lambda connection: list(connection.execute(names).scalars()))

    def names_of(self, base: str) -> list[str]:
        """Read the names of a sku's sales: its own, or those of its shards."""
        return self.run(lambda connection: read_names(connection, base))

    def confirmed_units(self, sku: str) -> int:
        """Add up the confirmed order rows, independently of the segment rows."""
        return self.run(lambda connection: read_confirmed_units(connection, sku))

    def unfinished_changes(self, sku: str) -> tuple[ChangeRow, ...]:
        """Read the restocks and withdrawals that one side may lack; repeat them with the same id and units."""
        return self.stocking.begun(sku)

    def close(self) -> None:
        """Close the connections, those in use as soon as they are returned. A later call connects for itself only."""
        self._is_closed = True
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Show the database, without secrets."""
        return f"{type(self).__name__}({shown(self._engine.url)})"

    def _end_use(self, connection: Connection) -> None:
        if self._is_closed:  # the engine would keep it for the next call, or in the pool that it has given up
            connection.invalidate()

    def run(self, work: Callable[[Connection], AnswerT]) -> AnswerT:
        """Run `work`, which may run twice, on a connection of its own; each of its statements is a transaction."""

        def on_connection() -> AnswerT:
            try:
                connection = self._engine.connect()
            except InvalidInput as error:  # usable when the engine was made, so the database is wrong, not an order
                raise DatabaseUnavailable(str(error)) from error
            with connection:
                try:
                    return work(connection)
                finally:
                    self._end_use(connection)

        with translated(self.where):
            return _repeated(on_connection)

    def write(self, work: Callable[[Connection], AnswerT]) -> AnswerT:
        """Run `work`, which may run twice, in one transaction, and commit it."""

        def whole(connection: Connection) -> AnswerT:
            connection.exec_driver_sql(self.begin)
            answer = work(connection)
            connection.commit()
            return answer

        return self.run(whole)


def _guarded(engine: Any) -> Engine:  # noqa: ANN401  # sync or async, or no engine at all
    """Return an engine of `connect`: the given one, or a new one at the same URL."""
    if isinstance(engine, Engine) and engine.get_execution_options().get(GUARDED):
        return engine
    url = getattr(engine, "url", None)
    if not isinstance(url, URL):
        message = f"the gate needs the URL of its order database, or an engine of SQLAlchemy, not {shortened(engine)}"
        raise InvalidInput(message)
    return connect(url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False))


def _repeated(work: Callable[[], AnswerT]) -> AnswerT:
    """Run `work`, and once more if a pooled connection has died unnoticed; a repeat finds what the first run did."""
    try:
        return work()
    except DBAPIError as error:
        if not is_worth_repeating(error):
            raise
    return work()


def _already_open(found: SegmentTotals) -> AlreadyOpen:
    return AlreadyOpen(found.quota, len(found.segments), found.sold, found.segments[0].epoch)


def _check_envelope(claims: Sequence[Claim]) -> None:
    if len(claims) > ENVELOPE_MAX:
        message = f"{len(claims):,} orders are too many for one transaction: up to {ENVELOPE_MAX:,} are possible"
        raise InvalidInput(message)
    skus = sorted({claim.sku for claim in claims})
    if len(skus) > 1:
        raise InvalidInput(f"orders of one transaction must have one sku, not {skus[0]!r} and {skus[1]!r}")


def _check_opening(sku: str, quotas: Sequence[int], epoch: int) -> None:
    if not 1 <= len(sku) <= SKU_LENGTH_MAX:
        raise InvalidInput(f"sku {sku!r} must have 1 to {SKU_LENGTH_MAX} characters")
    if not 1 <= len(quotas) <= SEGMENT_COUNT_MAX:
        raise InvalidInput(f"{sku!r} cannot have {len(quotas)} segments: 1 to {SEGMENT_COUNT_MAX:,} are possible")
    if min(quotas) < 0 or sum(quotas) > STOCK_MAX:
        raise InvalidInput(f"the quotas of {sku!r} must not be negative, nor more than {STOCK_MAX:,} together")
    if not 1 <= epoch <= EPOCH_MAX:
        raise InvalidInput(f"epoch {epoch} of {sku!r} must be between 1 and {EPOCH_MAX:,}")


def lower_within(connection: Connection, sku: str, order_id: str, quantity: int, epoch: int) -> None:
    """Lower an order's quantity in a transaction that has begun; see `lower`."""
    this = (orders_table.c.sku == sku, orders_table.c.order_id == order_id)
    more = (orders_table.c.state == CONFIRMED, orders_table.c.quantity > quantity, orders_table.c.epoch == epoch)
    chosen = select(orders_table.c.segment, orders_table.c.quantity).where(*this, *more)
    seen = connection.execute(chosen).one_or_none()
    if seen is None:
        return
    of_it = (segments.c.sku == sku, segments.c.segment == seen.segment)
    connection.execute(
        select(segments.c.segment).where(*of_it).with_for_update()
    )  # segments before orders: no deadlock
    found = connection.execute(chosen.with_for_update()).one_or_none()
    if found is not None:
        connection.execute(update(orders_table).where(*this).values(quantity=quantity))
        back = segments.c.sold - (found.quantity - quantity)
        connection.execute(update(segments).where(*of_it).values(sold=back))
