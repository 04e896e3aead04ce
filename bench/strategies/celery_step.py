"""The slow step of an order in a worker process, configured by its environment."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from bench.sections import Section

if TYPE_CHECKING:
    from bench.sections import Kind
    from segmented.models.submitted import BegunOrder

KIND: Final = "BENCH_SECTION_KIND"
MILLISECONDS: Final = "BENCH_SECTION_MS"
STEP: Final = "bench.strategies.celery_step:step"


def told(section: Section) -> dict[str, str]:
    """Return the environment variables that configure the step."""
    return {KIND: section.kind, MILLISECONDS: str(section.ms), "SEGMENTED_STEP": STEP}


@cache
def _section() -> Section:
    return Section(cast("Kind", os.environ[KIND]), float(os.environ[MILLISECONDS]))


def step(_: BegunOrder) -> None:
    """Spend the time."""
    _section().run()
