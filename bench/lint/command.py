"""`segmented bench lint FILE`.

Prints the verdicts as a table on a terminal, or as lines into a pipe.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from bench.granularity.record import read_results
from bench.lint.rules import check, may_publish

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from bench.lint.finding import Outcome, RuleFinding

RESULTS: Final = "results.jsonl"
COLOURS: Final[dict[Outcome, str]] = {"holds": "green", "broken": "bold red", "not applicable": "dim"}


def lint_file(path: Path, console: Console) -> int:
    """Check a results file, or the one in a folder, and return the exit code.

    0: every rule holds or does not apply. 1: some are broken. Raises InvalidInput for an invalid results file.
    """
    file = path / RESULTS if path.is_dir() else path
    results = read_results(file)
    findings = check(results, file.parent)
    show(findings, console)
    return 0 if may_publish(findings) else 1


def show(findings: Sequence[RuleFinding], console: Console) -> None:
    """Print rule, verdict and evidence, and how many hold."""
    if console.is_terminal:
        table = Table("rule", "asks for", "verdict", "evidence")
        for one in findings:
            verdict = Text(one.outcome, style=COLOURS[one.outcome])
            table.add_row(one.rule, one.title, verdict, Text(one.evidence))
        console.print(table)
    else:
        for one in findings:
            line = f"{one.rule} {one.title}: {one.outcome}: {one.evidence}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(summary(findings), highlight=False, soft_wrap=not console.is_terminal)


def summary(findings: Sequence[RuleFinding]) -> str:
    """Return the summary as one sentence."""
    count = Counter(one.outcome for one in findings)
    are = "is" if count["broken"] == 1 else "are"
    told = f"{count['holds']} of {len(findings)} rules hold, {count['broken']} {are} broken"
    apart = f", {count['not applicable']} do not apply" if count["not applicable"] else ""
    end = "not be published" if count["broken"] else "be published"
    return f"{told}{apart}: a table of these results may {end}."
