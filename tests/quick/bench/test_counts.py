"""The baseline of counts: what differs from it is named, in both directions."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Final

import pytest
from rich.console import Console

from bench.micro.counts.command import count
from bench.micro.counts.tally import REWRITE, Tally, differences, read_baseline, write_baseline
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

TALLY: Final = Tally(orders=100, commands=1_700, round_trips=100, attempts=0, bytes=58_800)


def test_equal_counts_say_nothing_whatever_the_time() -> None:
    assert differences({"reserve": replace(TALLY, server_us=9)}, {"reserve": TALLY}) == []


def test_a_count_that_differs_is_named() -> None:
    cases: list[tuple[str, int, str]] = [
        ("commands", 1_800, "reserve: commands an order 17 -> 18: it went up"),
        ("round_trips", 101, "reserve: round trips an order 1 -> 1.01: it went up"),
        ("attempts", 1, "reserve: attempts an order 0 -> 0.01: it went up"),
        ("bytes", 58_801, "reserve: bytes an order 588 -> 588.01: it went up"),
        ("commands", 1_600, f"reserve: commands an order 17 -> 16: it went down; {REWRITE}"),
        ("orders", 50, f"reserve was counted over 100 orders, and now over 50: {REWRITE}"),
    ]
    for field, value, sentence in cases:
        assert differences({"reserve": replace(TALLY, **{field: value})}, {"reserve": TALLY}) == [sentence]


def test_an_operation_on_one_side_alone_is_named() -> None:
    assert differences({"new": TALLY}, {"old": TALLY}) == [
        f"new has no baseline: {REWRITE}",
        f"old is in the baseline and was not counted: {REWRITE}",
    ]


def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    for text, said in (
        ("{", "is not a baseline of counts"),
        ('{"schema": "other/1"}', "is of schema 'other/1', and this reads 'segmented-counts/1'"),
        ('{"schema": "segmented-counts/1", "counts": {"reserve": {"orders": 1}}}', "is not a baseline of counts"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidInput, match=said):
            read_baseline(file)


def test_the_command_names_what_went_up_and_writes_a_baseline_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.micro.counts.command.measure", lambda: {"reserve": replace(TALLY, server_us=5_000)})
    file, said = tmp_path / "baseline.json", StringIO()
    console = Console(file=said)
    assert count(console, writes=True, file=file) == 0
    assert count(console, file=file) == 0
    write_baseline(file, {"reserve": replace(TALLY, commands=1_600)})
    assert count(console, file=file) == 1
    shown = "reserve: commands 17, round trips 1, attempts 0, bytes 588, server us 50"
    assert said.getvalue().splitlines() == [
        shown,
        f"1 operations written to {file}",
        shown,
        "all counts of 1 operations are as in the baseline",
        shown,
        "reserve: commands an order 16 -> 17: it went up",
    ]
