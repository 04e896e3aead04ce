"""A field of an order is in its record as text, and in the order database; see `test_every_field.py` for scripts."""

from dataclasses import fields
from typing import Any, Final

from segmented.ledger_lines import parse_record, record_text
from segmented.models import Order, OrderRecord
from segmented.orders.answers import OrderRow
from segmented.orders.tables import orders
from tests.support.paths import ROOT

FIELDS: Final = [field.name for field in fields(Order)]
OF_RECORD: Final = {"quantity": "asked"}
"""Names of a record's fields that differ from the order's."""
GIVEN: Final[dict[str, Any]] = {"state": "reserved", "parts": ((3, 4), (5, 1)), "quantity": 5, "asked": 7}


def full_record() -> OrderRecord:
    """Return a record whose fields all have a value of their own."""
    values: dict[str, Any] = {}
    for number, field in enumerate(fields(OrderRecord)):
        values[field.name] = GIVEN.get(field.name, number if "int" in str(field.type) else f"the {field.name}")
    return OrderRecord(**values)


def test_a_record_keeps_each_field_of_its_order_as_text() -> None:
    found = full_record()
    assert parse_record(found.order_id, record_text(found), hold_until_ms=found.hold_until_ms) == found
    assert {name: getattr(found.order, name) for name in FIELDS} == {
        name: getattr(found, OF_RECORD.get(name, name)) for name in FIELDS
    }


def test_the_order_database_and_its_page_have_each_field() -> None:
    page = (ROOT / "docs" / "reference" / "orders-tables.md").read_text(encoding="utf-8")
    section = page.partition("\n## segmented_orders\n")[2].partition("\n## ")[0]
    assert {field.name for field in fields(OrderRow)} == {column.name for column in orders.columns}
    assert [name for name in FIELDS if name not in orders.columns or f"| `{name}` |" not in section] == []
