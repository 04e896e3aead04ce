"""Critical sections whose length varies."""

from __future__ import annotations

import random
from statistics import fmean, pstdev

import pytest

from bench.sections import LONG, SHORT, SPREAD_MEAN_MAX, Kind, Section
from segmented.errors import InvalidInput

DRAWN = 20_000


@pytest.mark.parametrize(
    ("kind", "deviation"), [("lognormal", 20.0), ("bimodal", 20.0 * (LONG - SHORT) * 0.05**0.5 * 0.95**0.5)]
)
def test_spread_holds_have_the_planned_mean(kind: Kind, deviation: float) -> None:
    random.seed(7)
    section = Section(kind, 20.0)
    drawn = [section.drawn_ms() for _ in range(DRAWN)]
    assert abs(fmean(drawn) - 20.0) < 5 * deviation / DRAWN**0.5
    assert abs(pstdev(drawn) / deviation - 1) < 0.1


def test_the_seed_of_a_run_repeats_its_holds() -> None:
    section = Section("lognormal", 20.0)
    random.seed(1)
    first = [section.drawn_ms() for _ in range(10)]
    random.seed(1)
    assert [section.drawn_ms() for _ in range(10)] == first
    assert len(set(first)) == 10


@pytest.mark.parametrize("kind", ["lognormal", "bimodal"])
def test_a_spread_hold_has_a_mean_that_a_lease_outlasts(kind: Kind) -> None:
    assert str(Section(kind, SPREAD_MEAN_MAX)) == f"{kind}-200ms"
    with pytest.raises(InvalidInput, match=f"^a {kind} hold has a mean of up to 200 ms, not 200.5 ms$"):
        Section(kind, 200.5)
    with pytest.raises(InvalidInput, match=f"a critical section of kind {kind} needs a hold above 0 ms"):
        Section(kind)
