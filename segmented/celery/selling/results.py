"""Writing files in one step: who reads one never sees half of it."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.celery.selling.book import Book

COLUMNS: Final = ("order_id", "sku", "quantity", "outcome", "segment", "fencing_token", "sequence")
UNDECIDED: Final = "undecided"
FILE_MODE: Final = 0o666
CHUNK_ROWS: Final = 10_000


def write_results(path: Path, book: Book) -> None:
    """Write one line an order, in the file's order."""
    _replace(path, _result_lines(book))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object."""
    _replace(path, iter([json.dumps(content, indent=2) + "\n"]))


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


def _replace(path: Path, parts: Iterator[str]) -> None:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            with path.open("w", encoding="utf-8") as file:
                file.writelines(parts)
            return
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}.")
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            beside.chmod(path.stat().st_mode if path.exists() else FILE_MODE & ~_umask())
            beside.replace(path)
        except BaseException:
            beside.unlink()
            raise
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise SegmentedError(message) from error


def _umask() -> int:
    """Return what the user wants withheld from new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
