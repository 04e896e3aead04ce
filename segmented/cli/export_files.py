"""Files with one row a line: JSON objects, or CSV with a header. Complete or not written."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer

from segmented.cli.output import output_file
from segmented.ledger_lines import parts_text

ToOption = Annotated[
    Path, typer.Option("--to", metavar="FILE", parser=output_file, help="Output file; - is standard output.")
]
FormatOption = Annotated[
    Literal["jsonl", "csv"], typer.Option("--format", help="Format: one JSON object per line, or CSV with a header.")
]


def write_rows(file: TextIO, form: str, rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> int:
    """Write the rows, one at a time, and return how many there were. In CSV the parts of an order are one text."""
    count = 0
    if form == "csv":
        written = csv.DictWriter(file, columns, lineterminator="\n")
        written.writeheader()
        for count, row in enumerate(rows, start=1):  # noqa: B007  # the last number is the count
            written.writerow(row | {"parts": parts_text(row["parts"], segment=None, quantity=0)})
        return count
    for count, row in enumerate(rows, start=1):  # noqa: B007  # the last number is the count
        file.write(json.dumps(row) + "\n")
    return count
