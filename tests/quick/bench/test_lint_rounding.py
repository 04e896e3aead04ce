"""The lint compares what is told no finer than the file tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.lint.promises import goodput
from bench.lint.subject import Subject
from tests.support.bench.lint_results import honest
from tests.support.bench.records import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("off_s", "outcome"), [(0.0004, "holds"), (0.0007, "broken")])
def test_a_rate_may_differ_by_the_rounding_of_its_window_and_by_no_more(
    off_s: float, outcome: str, tmp_path: Path
) -> None:
    """30,000 orders a second, and a window that is told in milliseconds: half of one is fifteen orders."""
    fast = run(orders_per_s=30_000.0, hold_ms=1.0, wait_ms=1.0, window_s=1.2)
    told = fast.model_copy(update={"orders_per_s": 30_000.0 * fast.window_s / (fast.window_s + off_s)})
    assert goodput(Subject(honest().model_copy(update={"runs": (told,)}), tmp_path)).outcome == outcome
