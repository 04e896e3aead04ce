"""The files of a sale: one line an order, and the counts."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Final

from segmented.whole_files import whole_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from segmented.celery.selling.book import Book

COLUMNS: Final = ("order_id", "sku", "quantity", "outcome", "segment", "fencing_token", "sequence")
UNDECIDED: Final = "undecided"
CHUNK_ROWS: Final = 10_000


def write_results(path: Path, book: Book) -> None:
    """Write one line an order, in the file's order."""
    with whole_file(path) as file:
        file.writelines(_result_lines(book))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def _result_lines(book: Book) -> Iterator[str]:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, (order_id, line) in enumerate(book.orders.items(), start=1):
        outcome = book.outcomes.get(order_id)
        found = (
            (UNDECIDED, None, None, None)
            if outcome is None
            else (outcome.state, outcome.segment, outcome.fencing_token, outcome.sequence)
        )
        writer.writerow((order_id, line.sku, line.order.quantity, *found))
        if number % CHUNK_ROWS == 0:
            yield lines.getvalue()
            lines.seek(0)
            lines.truncate()
    yield lines.getvalue()
