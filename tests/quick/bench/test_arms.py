"""The figures of one lock against K segments, from rates written here: the same for Locust and for Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.arms import Arm, arm_figures
from bench.micro.workers.lanes import holds
from segmented.models import EntryKind, LedgerEntry

if TYPE_CHECKING:
    from bench.figures import Figure

ONE, FOUR = Arm(1, 20), Arm(4, 20)
LONE = {ONE: 0.025}


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_the_bound_is_what_may_be_at_once_over_the_hold_of_a_lone_order() -> None:
    for segments, at_once, bound in ((1, 64, 40.0), (4, 64, 160.0), (64, 32, 1_280.0)):
        assert Arm(segments, 20).bound_per_s(LONE, at_once) == pytest.approx(bound)


def test_ratios_are_within_one_round_and_a_round_that_lacks_one_side_does_not_count() -> None:
    found = by_name(
        arm_figures({ONE: {0: 10.0, 1: 20.0, 3: 1.0}, FOUR: {0: 40.0, 1: 80.0, 2: 999.0}}, LONE, at_once=64)
    )
    ratio = found["4 segments, hold 20 ms / one lock"]
    assert ratio.value == pytest.approx(4.0)
    assert ratio.detail == {"rounds": 2}
    assert found["one lock, hold 20 ms / its bound of 40/s"].value == pytest.approx((0.25 * 0.5 * 0.025) ** (1 / 3))
    assert found["a lone order, hold 20 ms: its hold"].value == 25.0
    assert "one lock, hold 20 ms / one lock" not in found


def test_a_ceiling_below_the_bound_replaces_it_and_asked_bounds_are_beside_figures() -> None:
    asked = {"4 segments, hold 20 ms / one lock": 3.0, "4 segments, hold 20 ms": 0.9}
    rates = {ONE: {0: 20.0, 1: 20.0}, FOUR: {0: 80.0, 1: 80.0}}
    found = by_name(arm_figures(rates, LONE, at_once=64, ceiling={0: 100.0, 1: 400.0}, asked=asked))
    share = found["4 segments, hold 20 ms / its bound of 160/s or the ceiling"]
    assert share.value == pytest.approx((0.8 * 0.5) ** 0.5)
    assert (share.at_least, share.kept) == (0.9, "no")
    assert found["4 segments, hold 20 ms / one lock"].kept == "yes"
    assert found["4 segments, hold 20 ms"].at_least is None


def entry(sequence: int, kind: EntryKind, order_id: str | None, at_us: int) -> LedgerEntry:
    return LedgerEntry(1, sequence, kind, at_us, order_id, 1, ((0, 1),), 0, None)


def test_a_hold_is_from_reserved_to_confirmed_of_the_same_order() -> None:
    entries = [
        entry(1, "opened", None, 0),
        entry(2, "reserved", "a", 1_000_000),
        entry(3, "reserved", "b", 1_500_000),
        entry(4, "reserved", "c", 1_600_000),
        entry(5, "confirmed", "b", 1_520_000),
        entry(6, "confirmed", "a", 1_700_000),
        entry(7, "cancelled", "c", 1_800_000),
    ]
    assert holds(entries) == pytest.approx([0.02, 0.7])
