"""The orders file: a CSV with a header, read and checked completely before anything is sold.

Required columns: `order_id` and `quantity`; optional: `customer_id` and `sku`; others are ignored. Accepts what
spreadsheets and exports write: a byte order mark, CRLF, quoted fields, blank lines, gzip. Everything else is refused
with the file, the line and the value in one sentence, because a misread order would still be sold.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput
from segmented.files import bounded_lines
from segmented.models import ORDER_ID_BYTES_MAX, QUANTITY_MAX, Order, check_own_id
from segmented.models.ids import is_unseen, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

REQUIRED: Final = ("order_id", "quantity")
KNOWN: Final = (*REQUIRED, "customer_id", "sku")
DEFAULT_SKU: Final = "default"
GZIP_MAGIC: Final = b"\x1f\x8b"
BYTE_ORDER_MARK: Final = "\ufeff"
SIZE_MAX: Final = 100
"""Maximum MiB of a file, unpacked, unless the caller allows more: a gzip file unpacks to a thousand times its size."""
SHOWN_MAX: Final = 60
"""Maximum characters of a wrong value that an error repeats."""

_WHOLE: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class FileOrder:
    """An order, its pool, and its line."""

    order: Order
    sku: str
    line: int


@dataclass(frozen=True, slots=True)
class OrdersFile:
    """A file that was read to its end and is valid."""

    path: Path
    orders: dict[str, FileOrder]
    """By order id, in the file's order."""
    repeated: int
    """Number of lines that repeat an earlier line; each order counts once."""
    ignored_columns: tuple[str, ...]

    @property
    def skus(self) -> tuple[str, ...]:
        """Every sku, in the order of its first line."""
        return tuple(dict.fromkeys(line.sku for line in self.orders.values()))


def read_orders(path: Path, *, sku: str | None = None, size_max: int = SIZE_MAX) -> OrdersFile:
    """Read the whole file, of at most `size_max` MiB unpacked; without a sku column its orders are for `sku`.

    Raises InvalidInput.
    """
    try:
        with path.open("rb") as raw:
            is_packed = raw.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
            if not is_packed:
                return _read(path, raw, sku, size_max)
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _read(path, unpacked, sku, size_max)
    except FileNotFoundError as error:
        message = f"{path} does not exist"
        raise InvalidInput(message) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"{path} is not a whole gzip file: {error}"
        raise InvalidInput(message) from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise InvalidInput(message) from error


def _read(path: Path, raw: BinaryIO | gzip.GzipFile, sku: str | None, size_max: int) -> OrdersFile:
    rows = _rows(path, _lines(path, raw, size_max))
    header_line, header = next(rows, (0, []))
    if not header:
        message = f"{path} is empty"
        raise InvalidInput(message)
    columns = _Columns(path, header_line, header, sku)
    orders: dict[str, FileOrder] = {}
    repeated = 0
    for line, row in rows:
        found = columns.order(line, row)
        known = orders.setdefault(found.order.order_id, found)
        if known is not found:
            _check_same(path, known, found)
            repeated += 1
    if not orders:
        message = f"{path} has a header and no order after it"
        raise InvalidInput(message)
    return OrdersFile(path, orders, repeated, columns.ignored)


def _lines(path: Path, raw: BinaryIO | gzip.GzipFile, size_max: int) -> Iterator[str]:
    for number, line in bounded_lines(raw, path, size_max=size_max, of="orders"):
        try:
            decoded = line.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8"
            raise InvalidInput(message) from error
        yield decoded.removeprefix(BYTE_ORDER_MARK) if number == 1 else decoded


def _rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each non-blank row with the number of its first line."""
    reader = csv.reader(lines, strict=True)
    while True:
        first = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            message = f"{path}, line {first}: not a row of comma-separated values: {error}"
            raise InvalidInput(message) from error
        if row is None:
            return
        if len(row) > 1 or any(field.strip() for field in row):
            yield first, [field.strip() for field in row]


class _Columns:
    """Which field of a row has which meaning."""

    def __init__(self, path: Path, line: int, header: list[str], sku: str | None) -> None:
        self._path = path
        self._count = len(header)
        names = [name.casefold() for name in header]
        for name in KNOWN:
            if names.count(name) > 1:
                message = f"{path}, line {line}: the header names the column {name} {names.count(name)} times"
                raise InvalidInput(message)
        missing = [name for name in REQUIRED if name not in names]
        if missing:
            lacks = f"column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
            message = f"{path}, line {line}: the header {_shown(','.join(header))} lacks the {lacks}"
            raise InvalidInput(message)
        self._order_id, self._quantity = names.index("order_id"), names.index("quantity")
        self._customer = names.index("customer_id") if "customer_id" in names else None
        self._sku = names.index("sku") if "sku" in names else None
        if self._sku is not None and sku is not None:
            message = f"{path} has a sku column, so one sku {sku!r} for all its orders cannot be given"
            raise InvalidInput(message)
        self._default_sku = sku or DEFAULT_SKU
        self.ignored = tuple(name for name, plain in zip(header, names, strict=True) if plain not in KNOWN)

    def order(self, line: int, row: list[str]) -> FileOrder:
        """Return the order of a row. Raises InvalidInput."""
        if len(row) != self._count:
            count = f"{len(row)} fields, but the header has {self._count}"
            message = f"{self._path}, line {line}: {count}: {_shown(','.join(row))}"
            raise InvalidInput(message)
        order_id = self._text(line, "order_id", row[self._order_id])
        quantity = self._whole(line, row[self._quantity])
        customer = None
        if self._customer is not None and row[self._customer]:
            customer = self._text(line, "customer_id", row[self._customer])
        sku = self._default_sku if self._sku is None else self._text(line, "sku", row[self._sku])
        try:
            check_own_id(order_id)
        except InvalidInput as error:
            message = f"{self._path}, line {line}: {error}"
            raise InvalidInput(message) from error
        return FileOrder(Order(order_id, quantity, customer), sku, line)

    def _text(self, line: int, name: str, value: str) -> str:
        if not 1 <= len(value) <= ORDER_ID_BYTES_MAX:
            message = (
                f"{self._path}, line {line}: {name} {_shown(value)} must have 1 to {ORDER_ID_BYTES_MAX} characters"
            )
            raise InvalidInput(message)
        if is_unseen(value):
            message = f"{self._path}, line {line}: {name} {_shown(value)} has characters that cannot be printed"
            raise InvalidInput(message)
        return plain_text(value)

    def _whole(self, line: int, value: str) -> int:
        quantity = int(value) if _WHOLE.fullmatch(value) else 0
        if not 1 <= quantity <= QUANTITY_MAX:
            rule = f"must be a whole number from 1 to {QUANTITY_MAX:,}"
            message = f"{self._path}, line {line}: quantity {_shown(value)} {rule}"
            raise InvalidInput(message)
        return quantity


def _check_same(path: Path, known: FileOrder, found: FileOrder) -> None:
    for name, before, now in (
        ("quantity", known.order.quantity, found.order.quantity),
        ("customer_id", known.order.customer_id, found.order.customer_id),
        ("sku", known.sku, found.sku),
    ):
        if before != now:
            order_id = found.order.order_id
            said = f"has {name} {now!r} here and {before!r} in line {known.line}"
            message = f"{path}, line {found.line}: order_id {order_id!r} {said}"
            raise InvalidInput(message)


def _shown(value: str) -> str:
    return repr(value if len(value) <= SHOWN_MAX else f"{value[:SHOWN_MAX]}...")
