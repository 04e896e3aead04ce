"""The orders file: read and checked completely before anything is sold.

Each line is an order, is summed into one, or is left out, and what decides that is asked for: nothing is merged or
dropped silently. Everything else is refused with the file, the line, the value and the option to type, because a
misread order would still be sold.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from segmented.celery.selling.order_formats import OWN, PARTLY, UNPAID, UNSOLD, Columns, Reading, find_columns, typed
from segmented.celery.selling.order_rows import read_rows
from segmented.errors import InvalidInput
from segmented.models import ORDER_ID_BYTES_MAX, QUANTITY_MAX, Order, check_own_id
from segmented.models.ids import counted, is_unseen, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

DEFAULT_SKU: Final = "default"
SHOWN_MAX: Final = 60
"""Maximum characters of a wrong value that an error repeats."""
SHOWN: Final = ("order_id", "sku", "quantity")
"""The fields of a line's fate."""
TOTALS: Final = frozenset(
    ("total", "totals", "grand total", "subtotal", "sum", "summe", "gesamt", "gesamtsumme", "somme", "suma", "totale")
)
"""Order ids of rows that sum the others."""

_WHOLE: Final = re.compile(r"([0-9]{1,18})(?:\.0{1,2})?")
_NEGATIVE: Final = re.compile(r"-[0-9]{1,18}(?:\.0{1,2})?|\([0-9]{1,18}\)")
_SCIENTIFIC: Final = re.compile(r"[0-9](?:[.,][0-9]+E\+?|E\+)[0-9]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FileOrder:
    """An order, its pool, and its line."""

    order: Order
    sku: str
    line: int

    @property
    def key(self) -> OrderKey:
        """The sku and the order's id."""
        return self.sku, self.order.order_id


OrderKey = tuple[str, str]
"""Sku and order id: with `--split-skus` an order is one order for each of its skus."""
PLAIN: Final = Reading()


@dataclass(frozen=True, slots=True)
class OrdersFile:
    """A file that was read to its end and is valid."""

    path: Path
    orders: dict[OrderKey, FileOrder]
    """In the file's order."""
    repeated: int
    """Number of lines that repeat an earlier line in every column; each order counts once."""
    ignored_columns: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """How the file was read, and what was left out."""

    @property
    def skus(self) -> tuple[str, ...]:
        """Every sku, in the order of its first line."""
        return tuple(dict.fromkeys(line.sku for line in self.orders.values()))


class Fate(NamedTuple):
    """The decision about a line of the file, with the line's own fields."""

    line: int
    order_id: str
    sku: str
    quantity: str
    fate: str


def read_orders(path: Path, reading: Reading = PLAIN, *, tell: Callable[[Fate], None] | None = None) -> OrdersFile:
    """Read the whole file. `tell` gets each line's fate, and lines after a wrong one are then read as well.

    Raises InvalidInput.
    """
    with closing(read_rows(path, reading)) as rows:
        line, header = next(rows, (0, []))
        if not header:
            raise InvalidInput(f"{path} is empty")
        found = _Orders(path, find_columns(f"{path}, line {line}", header, reading), reading)
        for number, row in rows:
            found.add(number, row, tell)
    return found.whole()


class _LeftOutError(Exception):
    """A line is not sold, as was asked for, or since it is no order."""


@dataclass(slots=True)
class _Need:
    """Why the file needs an option, at its first line, and for how many lines."""

    why: str
    lines: int = 0


class _Orders:
    """The orders of the rows that were added."""

    def __init__(self, path: Path, columns: Columns, reading: Reading) -> None:
        self._path = path
        self._columns = columns
        self._reading = reading
        asked_for = {one.at for one in columns.filters if one.is_equal}
        self._statuses = [at for at in columns.statuses if at not in asked_for]
        self._undone = [at for at in columns.undone if at not in asked_for]
        carried = (
            [*(one.at for one in columns.filters), *columns.statuses, *columns.undone]
            if columns.format.continues
            else []
        )
        of_line = columns.format.of_line
        self._carried = [at for at in carried if not columns.header[at].casefold().startswith(of_line)]
        self._sku = None if reading.sku is None else plain_text(reading.sku)
        self._last: dict[str, dict[int, str]] = {}
        """Order id -> column -> the text that its further lines leave out."""
        self._orders: dict[OrderKey, FileOrder] = {}
        self._first: dict[str, FileOrder] = {}
        """Order id -> its first line."""
        self._rows: dict[OrderKey, int] = {}
        """The hash of an order's first row, to tell a repeated line from a second one."""
        self._repeated = self._summed = 0
        self._left_out: dict[str, int] = {}
        self._needs: dict[str, _Need] = {}
        self._wrong: list[str] = []
        self._other_skus: dict[str, None] = {}

    def add(self, line: int, row: list[str], tell: Callable[[Fate], None] | None) -> None:
        """Add a row. Raises InvalidInput for a wrong one, unless `tell` gets its fate."""
        try:
            fate = self._fate(line, row)
        except _LeftOutError as left_out:
            kind = str(left_out).partition(":")[0]
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            fate = f"left out: {left_out}"
        except InvalidInput as error:
            if tell is None:
                raise
            self._wrong.append(str(error))
            fate = f"refused: {str(error).removeprefix(f'{self._path}, line {line}: ')}"
        if tell is not None:
            shown = dict(enumerate(row))
            order_id, sku, quantity = (shown.get(self._columns.at.get(name, -1), "") for name in SHOWN)
            tell(Fate(line, order_id, sku, quantity or str(self._reading.quantity or ""), fate))

    def whole(self) -> OrdersFile:
        """Return what was read.

        Raises InvalidInput for wrong lines, for options that are missing, for no order.
        """
        if self._wrong:
            message = self._wrong[0]
            if len(self._wrong) > 1:
                message += f" (and {counted(len(self._wrong) - 1, 'more line')})"
            raise InvalidInput(message)
        if self._needs:
            reasons = "; ".join(
                need.why + (f", as {counted(need.lines - 1, 'further line')}" if need.lines > 1 else "")
                for need in self._needs.values()
            )
            message = f"{self._path}, {reasons}: add {' '.join(self._needs)} ({self._read_as}--check shows each line)"
            raise InvalidInput(message)
        if not self._orders:
            raise InvalidInput(self._nothing())
        used = {*self._columns.at.values(), *self._columns.statuses}
        names = enumerate(self._columns.header if self._columns.format is OWN else ())
        ignored = tuple(name for at, name in names if at not in used and name)
        return OrdersFile(self._path, self._orders, self._repeated, ignored, self._notes())

    def _nothing(self) -> str:
        if not self._left_out:
            return f"{self._path} has a header and no order after it"
        if self._other_skus and self._reading.sku is not None:
            skus = ", ".join(map(_shown, list(self._other_skus)[:5]))
            return f"{self._path} has no order with --sku {self._reading.sku}: its skus are {skus}"
        return f"{self._path}: no order is left to sell: {self._said_left_out()}"

    def _said_left_out(self) -> str:
        return ", ".join(f"{count:,} left out as {kind}" for kind, count in self._left_out.items())

    @property
    def _read_as(self) -> str:
        return "" if self._columns.format is OWN else f"read as {self._columns.format.name}; "

    def _notes(self) -> tuple[str, ...]:
        columns, notes = self._columns, []
        if columns.format is not OWN:
            read = ", ".join(f"{name} {columns.header[columns.at[name]]!r}" for name in SHOWN if name in columns.at)
            notes.append(f"read as {columns.format.name}: {read} (--format or --map changes it)")
        if self._left_out:
            notes.append(f"lines not sold: {self._said_left_out()} (--check shows each)")
        if self._summed:
            notes.append(f"{counted(self._summed, 'line')} summed into an earlier line of the same order")
        return tuple(notes)

    def _fate(self, line: int, row: list[str]) -> str:
        row = self._fields(line, row)
        columns = self._columns
        own = dict(enumerate(row)) | self._carry(row) if self._carried else row
        for one in columns.filters:
            if (own[one.at].casefold() == one.value) is not one.is_equal:
                raise _LeftOutError(f"--where: {columns.header[one.at]} {_shown(own[one.at])}")
        sku = row[columns.at["sku"]] if "sku" in columns.at else None
        if sku is not None and self._sku is not None and plain_text(sku) != self._sku:
            self._other_skus.setdefault(sku)
            raise _LeftOutError(f"another sku: {_shown(sku)}")
        partly = self._partly(line, own)
        if partly is not None:
            return partly
        refund = self._refund(row, own)
        if refund is not None:
            return self._skipped(line, refund)
        unpaid = self._found_status(UNPAID, own)
        if unpaid is not None and self._reading.unpaid != "sell":
            return self._left_unpaid(line, unpaid)
        found = self._order(line, row)
        return self._merged(found, row)

    def _fields(self, line: int, row: list[str]) -> list[str]:
        count = len(self._columns.header)
        first = dict(enumerate(row)).get(self._columns.at["order_id"]) or next(filter(None, row))
        if first.casefold().rstrip(" :") in TOTALS:
            raise _LeftOutError(f"a total: {_shown(first)}")
        while len(row) > count and not row[-1]:
            row = row[:-1]
        if len(row) != count:
            fields = f"{counted(len(row), 'field')}, but the header has {count}"
            raise InvalidInput(f"{self._path}, line {line}: {fields}: {_shown(','.join(row))}")
        return row

    def _carry(self, row: Sequence[str]) -> dict[int, str]:
        """Return the columns that an order's further lines leave to its first one."""
        kept = self._last.setdefault(row[self._columns.at["order_id"]], {})
        for at in self._carried:
            if row[at]:
                kept[at] = row[at]
        return kept

    def _partly(self, line: int, own: Sequence[str] | dict[int, str]) -> str | None:
        """Return why a partly refunded order is refused, unless `--where` asks for exactly those."""
        columns = self._columns
        asked = {(one.at, one.value) for one in columns.filters if one.is_equal}
        for at in columns.statuses:
            if PARTLY.search(own[at].casefold()) and (at, own[at].casefold()) not in asked:
                name, status = columns.header[at], own[at]
                why = f"a partly refunded order, {name} {_shown(status)}, does not say how many units it still has"
                leave_out = f"--where {typed(f'{name}!={status}')}"
                self._need(leave_out, f"line {line}: {why}")
                return f"refused: {why} ({leave_out} leaves it out)"
        return None

    def _refund(self, row: Sequence[str], own: Sequence[str] | dict[int, str]) -> str | None:
        """Return why a line is a refund, a cancelled order or another correction, if it is one."""
        columns = self._columns
        if (status := self._found_status(UNSOLD, own)) is not None:
            return status
        for at in self._undone:
            if own[at].strip("0.,-") not in {"", "false", "FALSE"}:
                return f"{columns.header[at]} {_shown(own[at])}"
        order_id = row[columns.at["order_id"]]
        if order_id[:1].upper() in columns.format.refund_ids and order_id[1:].isdecimal():
            return f"{columns.header[columns.at['order_id']]} {_shown(order_id)} begins with {order_id[0]}"
        quantity = "" if columns.units is None else row[columns.units]
        if _NEGATIVE.fullmatch(quantity):
            return f"quantity {_shown(quantity)} is negative"
        if (zero := _WHOLE.fullmatch(quantity)) is not None and int(zero[1]) == 0:
            return f"quantity {_shown(quantity)} leaves nothing to sell"
        return None

    def _found_status(self, pattern: re.Pattern[str], own: Sequence[str] | dict[int, str]) -> str | None:
        """Return the first status that the pattern is in, with its column."""
        found = next((at for at in self._statuses if pattern.search(own[at].casefold())), None)
        return None if found is None else f"{self._columns.header[found]} {_shown(own[found])}"

    def _left_unpaid(self, line: int, unpaid: str) -> str:
        if self._reading.unpaid == "skip":
            raise _LeftOutError(f"unpaid: {unpaid}")
        self._need("--unpaid skip", f"line {line} is not paid: {unpaid} (--unpaid sell sells it all the same)")
        return f"refused: not paid: {unpaid} (--unpaid skip leaves it out, --unpaid sell sells it)"

    def _skipped(self, line: int, refund: str) -> str:
        if self._reading.skip_refunds:
            raise _LeftOutError(f"refunds: {refund}")
        why = f"line {line} is a refund or a cancelled order: {refund}"
        self._need("--skip-refunds", why)
        return f"refused: a refund or a cancelled order: {refund} (--skip-refunds leaves it out)"

    def _need(self, option: str, why: str) -> None:
        self._needs.setdefault(option, _Need(why)).lines += 1

    def _merged(self, found: FileOrder, row: Sequence[str]) -> str:
        """Add an order, or the second line of one."""
        order_id, content = found.order.order_id, hash(tuple(row))
        first = self._first.setdefault(order_id, found)
        if first.sku != found.sku and not self._reading.split_skus:
            skus = f"sku {found.sku!r} here and {first.sku!r} in line {first.line}"
            self._need("--split-skus", f"line {found.line}: order_id {order_id!r} has {skus}")
            self._merged_lines(found, content)  # a second line of this sku needs its own option
            return f"refused: {skus} (--split-skus sells each for itself, --sku one of them)"
        return self._merged_lines(found, content)

    def _merged_lines(self, found: FileOrder, content: int) -> str:
        order_id = found.order.order_id
        known = self._orders.setdefault(found.key, found)
        if known is found:
            self._rows[found.key] = content
            return "sold"
        if self._reading.sum_lines:
            self._sum(known, found)
            return f"sold: summed into line {known.line}"
        is_own = self._columns.format is OWN and not self._reading.map  # in others, equal lines may be two items
        if is_own and content == self._rows[found.key] and self._reading.quantity is None:
            self._repeated += 1
            return f"left out: repeats line {known.line}"
        second = f"a second line of order_id {order_id!r}, after line {known.line}"
        self._need("--sum-lines", f"line {found.line} is {second}")
        return f"refused: {second} (--sum-lines sums them)"

    def _sum(self, known: FileOrder, found: FileOrder) -> None:
        quantity = known.order.quantity + found.order.quantity
        customers = {known.order.customer_id, found.order.customer_id} - {None}
        where = f"{self._path}, line {found.line}: order_id {found.order.order_id!r}"
        if len(customers) > 1:
            here = f"customer_id {found.order.customer_id!r} here and {known.order.customer_id!r}"
            raise InvalidInput(f"{where} has {here} in line {known.line}")
        if quantity > QUANTITY_MAX:
            raise InvalidInput(f"{where} has more than {QUANTITY_MAX:,} units in its lines")
        order = Order(found.order.order_id, quantity, next(iter(customers), None))
        self._orders[known.key] = replace(known, order=order)
        self._summed += 1

    def _order(self, line: int, row: Sequence[str]) -> FileOrder:
        at, reading = self._columns.at, self._reading
        order_id = self._text(line, "order_id", row[at["order_id"]])
        quantity = self._whole(line, row[at["quantity"]]) if "quantity" in at else reading.quantity or 0
        named = row[at["customer_id"]] if "customer_id" in at else ""
        customer = self._text(line, "customer_id", named) if named else None
        sku = self._text(line, "sku", row[at["sku"]]) if "sku" in at else self._sku or DEFAULT_SKU
        try:
            check_own_id(order_id)
        except InvalidInput as error:
            raise InvalidInput(f"{self._path}, line {line}: {error}") from error
        return FileOrder(Order(order_id, quantity, customer), sku, line)

    def _text(self, line: int, name: str, value: str) -> str:
        if not 1 <= len(value) <= ORDER_ID_BYTES_MAX:
            raise InvalidInput(
                f"{self._path}, line {line}: {name} {_shown(value)} must have 1 to {ORDER_ID_BYTES_MAX} characters"
            )
        if is_unseen(value):
            message = f"{self._path}, line {line}: {name} {_shown(value)} has characters that cannot be printed"
            raise InvalidInput(message)
        if _SCIENTIFIC.fullmatch(value):
            said = "a spreadsheet has rounded it: format the column as text, and export it again"
            raise InvalidInput(f"{self._path}, line {line}: {name} {_shown(value)}: {said}")
        return plain_text(value)

    def _whole(self, line: int, value: str) -> int:
        whole = _WHOLE.fullmatch(value)
        quantity = int(whole[1]) if whole is not None else 0
        if not 1 <= quantity <= QUANTITY_MAX:
            rule = f"must be a whole number from 1 to {QUANTITY_MAX:,}"
            raise InvalidInput(f"{self._path}, line {line}: quantity {_shown(value)} {rule}")
        return quantity


def _shown(value: str) -> str:
    return repr(value if len(value) <= SHOWN_MAX else f"{value[:SHOWN_MAX]}...")
