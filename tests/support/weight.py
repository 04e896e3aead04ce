"""Counts the lines, files and words of the repository: `make weight` prints them, and none may grow past `MOST`.

Blank lines and comments count. What another command writes is left out:
modules for threads, reference pages, results.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import segmented
from tests.support.sync_of import HEADER, MARK

ROOT: Final = Path(__file__).parents[2]
CODE: Final = (".py", ".lua")
WRITTEN: Final = re.compile(
    r"^(Written by `make docs` from |<!-- Written by `make test-stacks` from here on)", re.MULTILINE
)
RENDERED: Final = {"lock-comparison.md", "celery-beat-compared.md", "celery-dedup-compared.md"}
"""Pages that `python -m tests.conformance` writes from its results."""

MOST: Final = {
    "lines of segmented, written by hand": 72_150,
    "lines of bench": 20_000,
    "lines of tests": 101_260,
    "files of segmented and bench": 480,
    "words of docs, written by hand": 70_000,
    "public names at the top": 43,
}
"""The most of each. A change that needs more takes something away, or raises the number here and says why."""


def weights() -> dict[str, int]:
    """Return what there is of each entry of `MOST`."""
    library = _files("segmented", CODE)
    bench = _files("bench", CODE)
    pages = [*_files("docs", (".md",)), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
    counts = (
        sum(len(_by_hand(path.read_text()).splitlines()) for path in library),
        _lines(bench),
        _lines(_files("tests", CODE)),
        len(library) + len(bench),
        sum(len(_without_written(path).split()) for path in pages),
        len(vars(segmented)["__all__"]),
    )
    return dict(zip(MOST, counts, strict=True))


def _files(folder: str, suffixes: tuple[str, ...]) -> list[Path]:
    return [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _by_hand(text: str) -> str:
    if text.startswith(HEADER.partition("{")[0]):
        return ""
    return text.partition(f"\n{MARK}")[0]


def _without_written(page: Path) -> str:
    if "results" in page.relative_to(ROOT).parts or page.name in RENDERED:
        return ""
    return WRITTEN.split(page.read_text(), maxsplit=1)[0]


if __name__ == "__main__":
    for name, count in weights().items():
        sys.stdout.write(f"{name:<40}{count:>8,}   at most {MOST[name]:,}\n")
