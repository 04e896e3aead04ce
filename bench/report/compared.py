"""Two sessions side by side, as one HTML file: nothing is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report.tables import rendered

if TYPE_CHECKING:
    from bench.analysis.compare import Comparison

TEMPLATE: Final = "compared.html.j2"
ORDER: Final = ("slower", "no throughput", "faster", "no difference", "not judged")


def page(found: Comparison, names: tuple[str, str]) -> str:
    """Return the HTML: what got worse first, then what got better."""
    told = {
        "found": found,
        "names": names,
        "rows": sorted(found.rows, key=lambda row: ORDER.index(row.verdict)),
        "only": (("A", found.only_in_a), ("B", found.only_in_b)),
        "broken": (("A", found.broken_in_a), ("B", found.broken_in_b)),
    }
    return rendered(TEMPLATE, told)
