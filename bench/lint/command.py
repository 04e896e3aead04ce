"""`segmented bench lint FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.granularity.record import read_results
from bench.lint.rules import check, may_publish
from bench.lint.table import show

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

RESULTS: Final = "results.jsonl"


def lint_file(path: Path, console: Console) -> int:
    """Check a results file, or the one in a folder, and return the exit code.

    0: every rule holds or does not apply. 1: some are broken. Raises InvalidInput for an invalid results file.
    """
    file = path / RESULTS if path.is_dir() else path
    results = read_results(file)
    findings = check(results, file.parent)
    show(findings, console)
    return 0 if may_publish(findings) else 1
