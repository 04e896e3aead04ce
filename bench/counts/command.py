"""`segmented bench counts` and `python -m bench.counts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from bench.counts.baseline import BASELINE, differences, read_baseline, write_baseline
from bench.counts.measure import measure
from bench.counts.tally import GATED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

    from bench.counts.tally import Tally


def count(console: Console, *, writes: bool = False, file: Path = BASELINE) -> int:
    """Count everything, and compare with the baseline or write it; return the exit code.

    0: everything equals the baseline, or it was written. 1: there are differences, which are printed. Raises
    InvalidInput for an invalid baseline file.
    """
    before = {} if writes else read_baseline(file)
    counts = measure()
    show(counts, console)
    if writes:
        write_baseline(file, counts)
        console.print(f"{len(counts)} operations written to {file}", highlight=False, soft_wrap=True)
        return 0
    found = differences(counts, before)
    for sentence in found:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if not found:
        console.print(f"all counts of {len(counts)} operations are as in the baseline", highlight=False)
    return 1 if found else 0


def show(counts: Mapping[str, Tally], console: Console) -> None:
    """Print the cost of an order; the server's microseconds are shown but not compared."""
    fields = (*GATED, "server_us")
    if console.is_terminal:
        table = Table("an order of", *(field.replace("_", " ") for field in fields))
        for name, tally in counts.items():
            table.add_row(name, *(tally.each(field) for field in fields))
        console.print(table)
        return
    for name, tally in counts.items():
        said = ", ".join(f"{field.replace('_', ' ')} {tally.each(field)}" for field in fields)
        console.print(f"{name}: {said}", highlight=False, soft_wrap=True)
