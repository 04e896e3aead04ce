"""Which test shows what a page says: `tests/proofs.toml`, and the table that `make docs` writes from it.

| key of a page | leads to |
| --- | --- |
| `shown` | a test that fails if a statement of the page is false, or a file of results |
| `set` | a constant, field (`Class.field`) or argument (`function.argument`) whose number the page has |
"""

import sys
import tomllib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

DOCS: Final = ROOT / "docs"
HEAD: Final = """\
# Proofs

Written by `make docs` from `tests/proofs.toml`. Each row names a page and what shows its statements: tests that fail if
one of them is false (in `tests/`; most names are sentences), files of results, and the constants that set its numbers.
[The test page](tests.md) says how to run the tests.

| page | shown by |
| --- | --- |
"""


def proofs(root: Path = ROOT) -> dict[str, dict[str, list[str]]]:
    """Return the targets of each page, by the page's path in docs/."""
    return tomllib.loads((root / "tests" / "proofs.toml").read_text(encoding="utf-8"))


def table() -> str:
    """Return the page in Markdown."""
    return HEAD + "".join(_row(page, targets) for page, targets in sorted(proofs().items()))


def _row(page: str, targets: dict[str, list[str]]) -> str:
    shown = [target.removeprefix("tests/") for target in targets.get("shown", [])]
    parts = [*_by_file(shown), *_by_file(targets.get("set", []))]
    title = (DOCS / page).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"| [{title}](../{page}) | {'<br>'.join(parts)} |\n"


def _by_file(targets: Iterable[str]) -> list[str]:
    """Return a part per file, with the names in it."""
    found = []
    for path, group in groupby(sorted(targets), key=lambda target: target.partition("::")[0]):
        names = [name for _, _, name in (target.partition("::") for target in group) if name]
        found.append(f"`{path}`{': ' if names else ''}{', '.join(f'`{name}`' for name in names)}")
    return found


if __name__ == "__main__":
    sys.stdout.write(table())
