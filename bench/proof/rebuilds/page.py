"""The paragraph on how long a rebuild takes, in docs/how-to/recover-a-pool.md: a pure function of the kept results."""

from __future__ import annotations

from textwrap import fill
from typing import Any, Final

WIDTH: Final = 120


def paragraph(results: dict[str, Any]) -> str:
    """Return the paragraph, as it stands on the page."""
    found: dict[str, Any] = results["figures"] | results["conditions"]
    words = (
        f"`segmented torture rebuild` made a pool with {found['confirmed']:,} confirmed and {found['reserved']:,} "
        f"reserved orders, let its server forget what happened to {found['forgotten']:,} orders, and rebuilt it, "
        f"{found['rebuilds']} times: in {found['seconds_median']:.2f} s (median), {found['seconds_max']:.2f} s at most."
        f" The p99 of orders of another pool on the same servers was {found['others_during_p99_ms']:,.1f} ms meanwhile,"
        f" and {found['others_steady_p99_ms']:,.1f} ms before. {found['cores']} cores for everything "
        f"({found['cpu_model']}), load {found['load_before']:g} at the beginning."
    )
    return f"{fill(words, WIDTH, break_on_hyphens=False)}\n"
