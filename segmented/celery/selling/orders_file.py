"""The orders file: read and checked completely before anything is sold.

Each line is an order, is summed into one, or is left out, and what decides that is asked for: nothing is merged or
dropped silently. Everything else is refused with the file, the line, the value and the option to type, because a
misread order would still be sold.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
import zipfile
import zlib
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from xml.etree.ElementTree import ParseError

from segmented.celery.selling.order_formats import (
    OWN,
    PARTLY,
    UNPAID,
    UNSOLD,
    Columns,
    Reading,
    find_columns,
    is_unquoted,
    typed,
)
from segmented.errors import InvalidInput
from segmented.files import MIB, bounded_lines
from segmented.imports import needs
from segmented.models import ORDER_ID_BYTES_MAX, QUANTITY_MAX, Order, check_own_id
from segmented.models.ids import counted, is_unseen, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from io import BufferedReader
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
PLAIN: Final = Reading()
LARGER: Final = ": allow more with --size-max MIB"
GZIP_MAGIC: Final = b"\x1f\x8b"
ZIP_MAGIC: Final = b"PK\x03\x04"
OLE_MAGIC: Final = b"\xd0\xcf\x11\xe0"
"""Begins a file of Excel before 2007."""
MARKS: Final = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark begins it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
BYTE_ORDER_MARK: Final = "\ufeff"
DELIMITERS: Final = (",", ";", "\t", "|")
NAMED: Final = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
EXACT_MAX: Final = 10**15
"""Excel keeps 15 digits of a number."""
_SEPARATOR_LINE: Final = re.compile(r'\s*"?sep=(.)"?[,;\s]*', re.IGNORECASE | re.DOTALL)
_BROKEN: Final = (
    zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError, ParseError, zlib.error,
)  # fmt: skip


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


Row = tuple[int, list[str]]


def read_rows(path: Path, reading: Reading) -> Generator[Row]:
    """Yield each non-blank row with its line, its fields without blanks around them. Raises InvalidInput."""
    delimiter, encoding, size_max = _one_character(reading.delimiter), _known(reading.encoding), reading.size_max
    try:
        with path.open("rb") as raw:
            start = raw.peek(4)[:4]
            if start.startswith(ZIP_MAGIC):
                yield from _excel(path, raw, reading)
                return
            _check_text(path, start, reading.sheet)
            with gzip.GzipFile(fileobj=raw) if start.startswith(GZIP_MAGIC) else raw as unpacked:
                yield from _csv(path, _lines(path, unpacked, size_max, encoding), delimiter)
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{path} is not a whole gzip file: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error


def _one_character(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    found = NAMED.get(delimiter.casefold(), delimiter)
    if len(found) != 1 or found in '"\r\n':
        raise InvalidInput(f"--delimiter {delimiter!r} is not one character, nor one of {', '.join(NAMED)}")
    return found


def _known(encoding: str | None) -> str | None:
    if encoding is None:
        return None
    try:
        "".encode(encoding)  # refuses a codec that is not for text
    except (LookupError, ValueError) as error:
        message = f"--encoding {encoding!r} is not a text encoding that Python knows: utf-8, cp1252 and utf-16 are"
        raise InvalidInput(message) from error
    return codecs.lookup(encoding).name


def _check_text(path: Path, start: bytes, sheet: str | None) -> None:
    if start.startswith(OLE_MAGIC):
        raise InvalidInput(f"{path} is an Excel file of the old kind, .xls: save it as .xlsx or CSV")
    if sheet is not None:
        raise InvalidInput(f"{path} is not an Excel file, so it has no --sheet {sheet!r}")


def _csv(path: Path, lines: Iterator[str], delimiter: str | None) -> Iterator[Row]:
    before, first = 0, ""
    for first in lines:  # the first line with content, which is the header
        if (said := _SEPARATOR_LINE.fullmatch(first)) is not None:
            delimiter = delimiter or said[1]
        elif first.strip():
            break
        before += 1
    else:
        return
    delimiter = delimiter or max(
        DELIMITERS, key=lambda one: len(next(csv.reader(first.splitlines()[:1], delimiter=one), []))
    )
    is_plain = delimiter == "\t" and is_unquoted(first.split("\t"))
    reader = csv.reader(
        chain([first], lines),
        delimiter=delimiter,
        strict=True,
        quoting=csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL,
    )
    kind = "comma-separated values" if delimiter == "," else f"values separated by {delimiter!r}"
    while True:
        line = before + reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InvalidInput(f"{path}, line {line}: not a row of {kind}: {error}") from error
        if row is None:
            return
        if any(field.strip() for field in row):
            yield line, [field.strip() for field in row]


def _lines(path: Path, raw: BufferedReader | gzip.GzipFile, size_max: int, encoding: str | None) -> Iterator[str]:
    start = raw.peek(4)[:4]
    name = encoding or next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
    is_wide = len("\n".encode(name)) > 1 or b"\n" not in "\n".encode(name)
    text = io.TextIOWrapper(raw, name, newline="") if is_wide else None
    number = 1
    try:
        lines = raw if text is None else _InUtf8(text)
        for number, line in bounded_lines(lines, path, size_max=size_max, of="orders", cure=LARGER):
            decoded = line.decode(name if text is None else "utf-8")
            if "\0" in decoded and encoding is None and number == 1:
                raise InvalidInput(f"{path}, line 1: it has NUL characters: if it is UTF-16, add --encoding utf-16-le")
            yield decoded.removeprefix(BYTE_ORDER_MARK) if number == 1 else decoded
    except UnicodeDecodeError as error:
        said = "UTF-8: name its encoding, as --encoding cp1252" if name == "utf-8" and encoding is None else name
        raise InvalidInput(f"{path}, line {number}: byte 0x{error.object[error.start]:02x} is not {said}") from error
    except UnicodeError as error:  # of codecs that name no byte
        raise InvalidInput(f"{path}, line {number}: it is not {name}: {error}") from error
    finally:
        if text is not None:
            text.detach()  # the file is its opener's to close


class _InUtf8(NamedTuple):
    """The lines in UTF-8 of a text file whose line ends are not those of ASCII."""

    text: io.TextIOWrapper

    def readline(self, size: int, /) -> bytes:
        return self.text.readline(size).encode("utf-8", "surrogatepass")


def _excel(path: Path, raw: BufferedReader, reading: Reading) -> Iterator[Row]:
    try:
        import openpyxl  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{needs(f'{path} is an Excel file, which', 'openpyxl')}; or save it as CSV") from error
    try:
        _check_size(path, raw, reading.size_max)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts that it does not read, such as rules for filling in
            book = openpyxl.load_workbook(raw, read_only=True, data_only=True)
            with closing(book):
                chosen = _sheet(path, {one.title: one for one in book.worksheets}, reading.sheet)
                width = 0
                for line, row in enumerate(chosen.iter_rows(values_only=True), start=1):
                    fields = [_text(value) for value in row]
                    if any(fields):
                        width = width or len(fields)
                        yield line, fields + [""] * (width - len(fields))  # a row may lack its last cells
    except InvalidInput:
        raise
    except _BROKEN as error:
        message = f"{path} is a zip file, but not an Excel file that can be read: {type(error).__name__}"
        raise InvalidInput(message) from error


def _check_size(path: Path, raw: BufferedReader, size_max: int) -> None:
    with zipfile.ZipFile(raw) as packed:
        size = sum(info.file_size for info in packed.infolist())
    if size > size_max * MIB:
        raise InvalidInput(f"{path} is larger than {size_max:,} MiB, unpacked: allow more with --size-max MIB")


def _sheet(path: Path, sheets: dict[str, Any], wanted: str | None) -> Any:  # noqa: ANN401  # openpyxl has no types
    if not sheets:
        raise InvalidInput(f"{path} has no sheet with cells, only charts: save the sheet of the orders as .xlsx or CSV")
    for one in sheets.values():
        one.reset_dimensions()  # some programs write wrong ones
    named = ", ".join(map(repr, sheets))
    if wanted is not None:
        if wanted not in sheets:
            raise InvalidInput(f"{path} has no sheet {wanted!r}: its sheets are {named}")
        return sheets[wanted]
    filled = [one for one in sheets.values() if any(any(row) for row in one.iter_rows(max_row=5, values_only=True))]
    if len(filled) > 1:
        raise InvalidInput(f"{path} has {len(filled)} sheets, {named}: name one with --sheet")
    return filled[0] if filled else next(iter(sheets.values()))


def _text(value: object) -> str:
    """Return a cell as CSV would have it; a number beyond 15 digits has lost some, and is shown so."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case int() | float() if abs(value) >= EXACT_MAX:
            return f"{value:.14E}"
        case float() if value.is_integer():
            return str(int(value))
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
    return str(value).strip()
