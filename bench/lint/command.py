"""`segmented bench lint FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.granularity.record import read_results
from bench.lint.rules import check, may_publish
from bench.lint.table import show
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

RESULTS: Final = "results.jsonl"


def lint_file(path: Path, console: Console) -> int:
    """Check a results file, or the one in a folder, and return the exit code.

    0: every rule holds or does not apply. 1: some are broken. 2: it is no results file, which is said in a sentence.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        results = read_results(file)
    except InvalidInput as error:
        console.print(str(error), highlight=False, markup=False, soft_wrap=True)
        return 2
    findings = check(results, file.parent)
    show(findings, console)
    return 0 if may_publish(findings) else 1
