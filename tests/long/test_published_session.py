"""The published session: its files belong together, and what README and page quote is drawn again from its results."""

import hashlib
import re
from functools import cache
from typing import Final

import pytest

from bench import readme_chart
from bench.engine.record import ResultFile, read_results
from bench.lint import check
from bench.report.comparisons import noise
from bench.report.facts import Facts, Spot
from bench.report.markdown import table, verdicts
from bench.report.tables import with_interval
from tests.support.paths import ROOT

PUBLISHED: Final = ROOT / "docs" / "results" / "2026-11-28"
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs" / "explanation" / "what-we-measured.md"
PAYS: Final = PAGE.with_name("when-segments-pay.md")
DRAWN_BY: Final = {"table.md": table, "verdicts.md": verdicts}


@cache
def _results() -> ResultFile:
    return read_results(PUBLISHED / "results.jsonl")


def test_every_published_file_has_the_sum_that_the_session_wrote_for_it() -> None:
    sums = dict(line.split("  ")[::-1] for line in (PUBLISHED / "SHA256SUMS").read_text("utf-8").splitlines())
    files = [file for file in PUBLISHED.rglob("*") if file.is_file() and file.name != "SHA256SUMS"]
    found = {file.relative_to(PUBLISHED).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert found.items() <= sums.items()
    assert len(found) == 143


def test_the_published_session_is_whole_and_every_check_holds() -> None:
    broken = [one.check for one in check(_results(), PUBLISHED) if not one.holds]
    assert (len(_results().runs), broken) == (990, [])


def test_each_pair_of_the_same_code_is_told_by_what_it_does_under_the_lock() -> None:
    assert [row.name for row in noise(Facts(_results())).rows] == [
        "B/A of segment-locks, K=16: no slow step, 64 buyers, closed",
        "B/A of segment-locks, K=16: hold 20 ms, 64 buyers, closed",
    ]


@pytest.mark.parametrize("name", DRAWN_BY)
def test_a_published_table_is_drawn_again_from_the_results_to_the_last_character(name: str) -> None:
    drawn = DRAWN_BY[name](Facts(_results()))
    assert (PUBLISHED / name).read_text("utf-8") == drawn


def test_the_page_has_each_verdict_that_the_session_published() -> None:
    published = re.findall(
        r"^\| (H\d+) \| [^|]+ \| (\w+) \|", (PUBLISHED / "verdicts.md").read_text("utf-8"), re.MULTILINE
    )
    on_page = re.findall(r"^\| (H\d+) \| [^|]+ \| (\w+):", PAGE.read_text("utf-8"), re.MULTILINE)
    assert (on_page, len(on_page)) == (published, 13)


def test_the_chart_of_the_start_page_is_drawn_again_exactly_from_the_results() -> None:
    assert (ROOT / "docs" / "charts" / "locks.svg").read_text("utf-8") == readme_chart.chart(Facts(_results()))


def test_the_readme_has_the_short_table() -> None:
    assert readme_chart.table(Facts(_results())) in README.read_text("utf-8")


def test_the_readme_is_short_and_no_table_in_it_is_wide() -> None:
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) < 150
    assert {line.count("|") for line in lines if line.startswith("|")} == {5}


def _rate(section: str, hold_ms: float, strategy: str, segments: int) -> Spot:
    """Return the cell with 64 buyers, one unit an order and no delay in the network."""
    wanted = {
        "section": section,
        "hold_ms": hold_ms,
        "segments": segments,
        "buyers": 64,
        "quantity": 1,
        "proxied": False,
    }
    spots = Facts(_results()).select(loop="closed", strategy=strategy, batch=1)
    (found,) = [one for one in spots if all(getattr(one.cell, name) == value for name, value in wanted.items())]
    return found


def test_the_page_on_when_segments_pay_quotes_the_session() -> None:
    rows = [
        ("20 ms", 20, _rate("sleep", 20.0, "segment-locks", 20), _rate("sleep", 20.0, "segment-locks", 1)),
        ("5 ms", 16, _rate("sleep", 5.0, "segment-locks", 16), _rate("sleep", 5.0, "global-lock", 1)),
        ("none", 16, _rate("none", 0.0, "segment-locks", 16), _rate("none", 0.0, "global-lock", 1)),
    ]
    drawn = "".join(
        f"| {work} | {locks} | {with_interval(many)} | {with_interval(one)} | {many.mean / one.mean:.3g} |\n"
        for work, locks, many, one in rows
    )
    assert drawn in PAYS.read_text("utf-8")
