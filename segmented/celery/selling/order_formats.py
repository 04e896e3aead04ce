"""The columns of an orders file: our own names, those of a shop's export that the header shows, or those of `--map`.

A format is known by its header alone. It only names columns: which lines are summed or left out is always asked for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from segmented.errors import InvalidInput
from segmented.models.ids import visible

FIELDS: Final = ("order_id", "quantity", "customer_id", "sku")
REQUIRED: Final = FIELDS[:2]
SIZE_MAX: Final = 100
"""Maximum MiB of a file, unpacked, unless the caller allows more: a gzip file unpacks to a thousand times its size."""
HEADER_SHOWN: Final = 400
"""Maximum characters of a header that an error repeats."""
STATUS_NAMES: Final = frozenset(
    ("status", "order status", "order_status", "order-status", "item-status", "financial status", "payment status")
)
"""Columns that say in any file whether a line is a sale; a format may have others."""
UNSOLD: Final = re.compile(
    r"refund|cancel|void|fail|return|charge-?back|disput|expired|delet|not attending|trash|draft|abandon|transferred"
    r"|declin|reject|incomplete|requires_|unavailable|adjmnt|blocked|uncaptured"
)
"""A part of a status that a sale does not have."""
UNPAID: Final = re.compile(
    r"pending|unpaid|partially[ _-]?paid|not paid|on[ _-]?hold|await\w*[ _-]payment|overdue|^authori[sz]ed"
)
"""A part of the status of an order that is not paid, and may be later."""
PARTLY: Final = re.compile(r"partial(?:ly)?[ _-]?refund")
"""A part of the status of an order of which some units are sold: no column says how many."""
_LISTING: Final = re.compile(r"(?:line|order)[ _]?items?(?:[ _]?1)?|products", re.IGNORECASE)
"""A column of exports with a line per order, with several items and their quantities in its cells."""
_MAPPED: Final = re.compile(r"(?:^|,)\s*(\w+)\s*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read a file: the options that concern its lines."""

    format: str | None = None
    map: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    sku: str | None = None
    """The sku of all orders, or the only one to sell of a file with a column of skus."""
    quantity: int | None = None
    """Units of each row, instead of a column."""
    sum_lines: bool = False
    split_skus: bool = False
    skip_refunds: bool = False
    unpaid: Literal["skip", "sell"] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    size_max: int = SIZE_MAX


@dataclass(frozen=True, slots=True)
class Format:
    """The column names of an export."""

    name: str
    order_id: str
    quantity: str | None
    sku: str | None
    marks: tuple[str, ...] = ()
    """Further columns that such a header always has."""
    statuses: tuple[str, ...] = ()
    """Further columns with a status."""
    undone: tuple[str, ...] = ()
    """Columns that are empty or 0 unless the order was refunded or cancelled: an amount or a date."""
    refund_ids: tuple[str, ...] = ()
    """First letters of the ids of refunds and corrections."""
    continues: bool = False
    """The further lines of an order leave the columns of the whole order empty."""
    of_line: tuple[str, ...] = ()
    """First letters, in lower case, of columns that each line has for itself all the same."""

    def is_header(self, names: frozenset[str]) -> bool:
        """Return whether a header, in lower case, is one of this format. The sku may be missing."""
        needed = (self.order_id, self.quantity or self.order_id, *self.marks)
        return all(name.casefold() in names for name in needed)


OWN: Final = Format("own", "order_id", "quantity", "sku")
FORMATS: Final = (
    Format(
        "shopify",
        "Name",
        "Lineitem quantity",
        "Lineitem sku",
        statuses=("Financial Status",),
        undone=("Cancelled at",),
        continues=True,
        of_line=("lineitem ", "vendor"),
    ),
    Format("woocommerce", "Order Number", "Quantity (- Refund)", "SKU"),
    Format("woocommerce", "Order Number", "Quantity", "SKU", marks=("Item Cost",)),
    Format("woocommerce", "order_number", "item_quantity", "item_sku"),
    Format("woocommerce", "Order #", "Items Sold", None, marks=("Product(s)",)),
    *(
        Format("eventbrite", order_id, quantity, "Ticket Type", (mark,), ("Order Type", "Attendee Status"))
        for order_id in ("Order #", "Order no.", "Order ID")
        for quantity in ("Quantity", "Ticket Quantity", "QTY")
        for mark in ("Attendee #", "Attendee Status", "Order Type")
    ),
    *(
        Format("stripe", "id", None, None, (created, "Amount Refunded"), undone=("Amount Refunded",))
        for created in ("Created (UTC)", "Created date (UTC)", "Created")
    ),
    Format("amazon", "amazon-order-id", "quantity", "sku"),
    Format("amazon", "amazon-order-id", "quantity-shipped", "sku"),
    Format("amazon", "order-id", "quantity-purchased", "sku"),
    Format("amazon", "Order ID", "Qty", "SKU", marks=("ASIN",), statuses=("Courier Status",)),
    Format("amazon", "Order ID", "Quantity", "ASIN", marks=("ASIN",)),
    Format("walmart", "Order#", "Qty", "SKU", marks=("PO#",)),
    Format(
        "walmart", "Walmart.com Order #", "Shipped Qty", "Partner Item ID", ("Transaction Type",), ("Transaction Type",)
    ),
    Format("olist", "order_id", None, "product_id", marks=("order_item_id",)),
    Format("olist", "order_id", None, None, marks=("order_purchase_timestamp", "order_status")),
    Format("online-retail", "InvoiceNo", "Quantity", "StockCode", refund_ids=("C", "A")),
    Format("online-retail", "Invoice", "Quantity", "StockCode", refund_ids=("C", "A")),
)
NAMES: Final = (OWN.name, *dict.fromkeys(one.name for one in FORMATS))


def parse_map(texts: Iterable[str]) -> dict[str, str]:
    """Return the column of each field that `--map order_id=Name,quantity=Qty` names. Raises InvalidInput.

    A column's name may have commas and blanks, and may stand in quotes. An empty one means that no column has it.
    """
    found: dict[str, str] = {}
    for text in texts:
        starts = list(_MAPPED.finditer(text))
        if not starts or starts[0].start():
            raise InvalidInput(f"--map {text!r} should be FIELD=COLUMN,...; the fields are {', '.join(FIELDS)}")
        ends = [one.start() for one in starts[1:]] + [len(text)]
        for start, end in zip(starts, ends, strict=True):
            field, column = start[1], text[start.end() : end].strip()
            if field not in FIELDS or field in found:
                why = "is named twice" if field in found else f"is not one of {', '.join(FIELDS)}"
                raise InvalidInput(f"--map {text!r}: the field {field!r} {why}")
            is_quoted = len(column) > 1 and column[0] == column[-1] and column[0] in "\"'"
            found[field] = column[1:-1] if is_quoted else column
    for field in REQUIRED:
        if found.get(field) == "":
            raise InvalidInput(f"--map {field}= names no column")
    return found


class Filter(NamedTuple):
    """One `--where COLUMN=VALUE`, or `COLUMN!=VALUE`; values are compared without regard to case."""

    at: int
    is_equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the fields of an order are in a row."""

    format: Format
    header: tuple[str, ...]
    at: dict[str, int]
    """Field -> place, of the fields that have a column."""
    statuses: tuple[int, ...]
    undone: tuple[int, ...]
    filters: tuple[Filter, ...]
    units: int | None
    """The place of the quantity, also where `--quantity` replaces it: a refund shows there."""


def find_columns(where: str, header: Sequence[str], reading: Reading) -> Columns:
    """Return the columns of the header at `where`. Raises InvalidInput, with the header and what to type."""
    names = [one.casefold() for one in header]
    shown = f"the header is {_shortened(', '.join(header))!r}"
    mapped = parse_map(reading.map)
    found = _format(f"{where}: ", shown, frozenset(names), reading.format)
    chosen = {"order_id": found.order_id, "quantity": found.quantity, "sku": found.sku}
    if found is OWN:
        chosen["customer_id"] = "customer_id"
    if reading.quantity is not None:
        if "quantity" in mapped:
            raise InvalidInput(
                f"--quantity {reading.quantity} and --map quantity={mapped['quantity']} both say the units: give one"
            )
        chosen["quantity"] = None
    at: dict[str, int] = {}
    for field, column in (chosen | mapped).items():
        count = names.count(column.casefold()) if column else 0
        if count > 1:
            raise InvalidInput(f"{where}: the header names the column {column} {count} times")
        if column and not count and field in mapped:
            raise InvalidInput(f"{where}: there is no column {column!r} for --map {field}=; {shown}")
        if column and count:
            at[field] = names.index(column.casefold())
    missing = [field for field in REQUIRED if field not in at and (field == "order_id" or reading.quantity is None)]
    if missing:
        lacks = f"column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
        listing = next((one for one in header if _LISTING.fullmatch(one)), None)
        if "quantity" in missing and listing is not None:
            message = f"{where}: the column {listing!r} lists the items of an order in one cell: export a line per item"
            raise InvalidInput(message)
        raise InvalidInput(f"{where}: the header lacks the {lacks}: add {_to_type(header, at, found)}; {shown}")
    own_units = found.quantity.casefold() if found.quantity else ""
    return Columns(
        found,
        tuple(header),
        at,
        statuses=_places(names, {*STATUS_NAMES, *found.statuses}, at),
        undone=_places(names, found.undone, at),
        filters=tuple(_filter(where, text, header, shown) for text in reading.where),
        units=at.get("quantity", names.index(own_units) if names.count(own_units) == 1 else None),
    )


def is_unquoted(header: Iterable[str]) -> bool:
    """Return whether a header between tabs is Amazon's, whose reports quote nothing: a quotation mark is text."""
    names = frozenset(one.strip().casefold() for one in header)
    return any(one.name == "amazon" and one.is_header(names) for one in FORMATS)


def _places(names: Sequence[str], wanted: Iterable[str], taken: Mapping[str, int]) -> tuple[int, ...]:
    lower = {name.casefold() for name in wanted}
    return tuple(at for at, name in enumerate(names) if name in lower and at not in taken.values())


def _format(where: str, shown: str, names: frozenset[str], wanted: str | None) -> Format:
    if wanted is not None and wanted not in NAMES:
        raise InvalidInput(f"--format {wanted!r} is not known: it is one of {', '.join(NAMES)}")
    if wanted == OWN.name or (wanted is None and names.issuperset(REQUIRED)):
        return OWN
    candidates = [one for one in FORMATS if wanted in {None, one.name}]
    found = next((one for one in candidates if one.is_header(names)), None)
    if found is None and wanted is not None:
        raise InvalidInput(f"{where}it is not the header of {wanted}, which has {candidates[0].order_id!r}; {shown}")
    return found or OWN


def _filter(where: str, text: str, header: Sequence[str], shown: str) -> Filter:
    for at, name in enumerate(header):
        for sign in ("!=", "="):
            if name and text.casefold().startswith(f"{name.casefold()}{sign}"):
                return Filter(at, is_equal=sign == "=", value=text[len(name) + len(sign) :].strip().casefold())
    raise InvalidInput(f"{where}: --where {text!r} should be COLUMN=VALUE or COLUMN!=VALUE; {shown}")


_GUESSES: Final = {
    "order_id": (r"order.?(id|number|no\b|nr\b|#|name|ref)|^(order|invoice|receipt|bestell|purchase)", r"^id$|^name$"),
    "quantity": (r"quantity|qty|^units?$|menge|anzahl|quantit|cantidad|pieces|^count$|tickets$|items sold",),
    "sku": (r"\bsku\b|_sku$|stock.?code|product.?(id|code)|^asin$|item.?(id|code)|artikel", r"variant|ticket type"),
}


def _to_type(header: Sequence[str], at: Mapping[str, int], found: Format) -> str:
    """Return the options to type for a header that lacks a column: our best guess, or a placeholder."""
    named = {field: header[place] for field, place in at.items()}
    for field, patterns in _GUESSES.items():
        fits = [one for pattern in patterns for one in header if re.search(pattern, one.casefold())]
        guess = next((one for one in fits if one not in named.values()), None)
        if field not in named and guess is not None:
            named[field] = guess
    by_row = "--quantity 1 if each row is one unit"
    if found is not OWN:
        return f"{by_row}, or --map quantity=COLUMN"
    order_id = typed(named.get("order_id", "COLUMN"))
    sku = f",sku={typed(named['sku'])}" if "sku" in named else ""
    if "quantity" in named:
        return f"--map order_id={order_id},quantity={typed(named['quantity'])}{sku}"
    return f"--map order_id={order_id},quantity=COLUMN{sku}, or --map order_id={order_id}{sku} {by_row}"


def typed(text: str) -> str:
    """Return a text as a shell takes it."""
    return shlex.quote(visible(text)) if re.search(r"[^\w.-]", text) else text


def _shortened(text: str) -> str:
    return text if len(text) <= HEADER_SHOWN else f"{text[:HEADER_SHOWN]}..."
