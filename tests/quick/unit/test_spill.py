"""A spill returns the lines of each order in their order, from memory and from its file alike."""

from __future__ import annotations

from collections import defaultdict

import pytest

from segmented.stock import spill
from segmented.stock.spill import Spill


@pytest.mark.parametrize(("order_count", "part_count"), [(0, 1), (4_096, 1), (4_097, 2), (100_000, 32), (10**9, 4_096)])
def test_there_is_one_part_for_4096_orders_up_to_a_maximum(order_count: int, part_count: int) -> None:
    assert Spill(order_count).part_count == part_count


@pytest.mark.parametrize("lines_max", [1, 7, 100_000])
def test_each_order_has_its_lines_in_order_in_one_part(monkeypatch: pytest.MonkeyPatch, lines_max: int) -> None:
    monkeypatch.setattr(spill, "LINES_MAX", lines_max)
    monkeypatch.setattr(spill, "CHUNK_LINES", 0)
    kept = Spill(20_000)
    expected = defaultdict(list)
    for step in range(40):
        head, lines = f"kind {step}", [f"order-{(7 * step + index) % 50}é\t{step}" for index in range(5)]
        kept.add(head, lines)
        for line in lines:
            expected[line.split("\t")[0]].append((head, line))
    found: list[defaultdict[str, list[tuple[str, str]]]] = [defaultdict(list) for _ in range(kept.part_count)]
    for number in range(kept.part_count):
        for head, line in kept.read(number):
            found[number][line.split("\t")[0]].append((head, line))
    assert {order_id: lines for part in found for order_id, lines in part.items()} == expected
    assert sum(map(len, found)) == len(expected) == 50
    assert [list(kept.read(number)) for number in range(kept.part_count)] == [
        list(kept.read(number)) for number in range(kept.part_count)
    ]


def test_a_line_without_a_head_and_without_more_than_an_id_is_kept_as_it_is() -> None:
    kept = Spill(0)
    kept.add("", ["a", "b"])
    assert list(kept.read(0)) == [("", "a"), ("", "b")]
