"""Writes the section "Errors" of docs/glossary.md: each error class, with cause and cure from its docstring."""

from __future__ import annotations

from typing import Final

import segmented.errors
from tests.support.paths import ROOT
from tests.support.reference import public_names

PAGE: Final = ROOT / "docs" / "glossary.md"
HEADING: Final = "## Errors\n"
HEAD: Final = """
Written by `make docs` from the docstrings of `segmented.errors`.

| error | cause | cure |
| --- | --- | --- |
"""
CURE: Final = "Cure: "


def section() -> str:
    """Return the section, from its heading to the end of the page."""
    return HEADING + HEAD + "".join(_row(name) for name in public_names(segmented.errors))


def _row(name: str) -> str:
    first, _, rest = (getattr(segmented.errors, name).__doc__ or "").partition("\n")
    cause, cure = (" ".join(part.split()) for part in (first, rest))
    if not cure.startswith(CURE):
        raise LookupError(f"the docstring of {name} needs a second paragraph that begins with {CURE!r}")
    return f"| `{name}` | {cause} | {cure.removeprefix(CURE)} |\n"


if __name__ == "__main__":
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(HEADING)
    PAGE.write_text(before + section(), encoding="utf-8")
