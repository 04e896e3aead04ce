"""The page of the deduplication comparison, from a record written here."""

from __future__ import annotations

from typing import Any

from bench.proof.peers.dedup.comparison import merged
from bench.proof.peers.dedup.page import render
from bench.proof.peers.dedup.registry import CONTENDERS, ROWS

CONDITIONS = {
    "date": "2026-11-21",
    "commit": "abc",
    "versions": {"redis": "8.1.0", "celery": "5.7.0"},
    "cores": 2,
    "cpu_model": "a processor",
    "system": "a system",
    "load": 0.5,
}


def result(evidence: str, *, held: bool | None) -> dict[str, Any]:
    return {"held": held, "evidence": evidence, "seconds": 1.0}


def run_of(name: str, **results: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "conditions": CONDITIONS, "results": results}


def line_of(page: str, row_id: str) -> str:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row_id} |")]
    return line


def test_a_row_shows_who_passes_who_fails_who_does_not_offer_it_and_who_was_not_run() -> None:
    found = [
        run_of("celery-once", F4=result("2 runs of 1 order", held=False)),
        run_of("celery-deduplicating", F4=result("1 run of 1 order", held=True)),
        run_of("celery", F4=result("2 runs at the same time", held=False)),
    ]
    page = render(merged(None, found))
    assert line_of(page, "F4").endswith("| not run yet | ✗ | not run yet | ✓ | - |")
    assert "- celery-once, fails: 2 runs of 1 order\n" in page
    assert "- Celery, not offered: 2 runs at the same time (it does not keep two runs apart)\n" in page


def test_the_totals_count_what_passes_what_fails_and_what_is_not_offered() -> None:
    results = {
        "F4": result("2 runs", held=False),
        "F6": result("1 run", held=True),
        "F22": result("both ran", held=False),
        "F23": result("a worker did not start", held=None),
        "shared": result("a worker did not start", held=None),
    }
    page = render(merged(None, [run_of("celery-once", **results)]))
    assert "| | **✓ / ✗ / -** | not run yet | 1 / 1 / 1 | not run yet | not run yet | not run yet |" in page


def test_the_page_says_what_each_contender_was_run_with() -> None:
    page = render(merged(None, [run_of("celery", F1=result("1 effect", held=True))]))
    assert (
        "- Celery: 2026-11-21, commit `abc`; celery 5.7.0, redis 8.1.0; 2 cores (a processor), a system, "
        "load at the end 0.5\n" in page
    )
    assert "- celery-once: not run yet\n" in page


def test_every_row_has_a_line_in_the_table_and_a_part_of_its_own() -> None:
    page = render(merged(None, []))
    for row in ROWS:
        assert row.must_hold in line_of(page, row.row_id)
        assert f"\n### {row.row_id}\n" in page


def test_a_run_of_one_contender_leaves_the_others_as_they_were_kept() -> None:
    kept = merged(
        None, [run_of("celery", F1=result("old", held=True)), run_of("celery-once", F1=result("old", held=False))]
    )
    again = merged(kept, [run_of("celery", F1=result("new", held=True))])
    evidence = {one["name"]: one["results"]["F1"]["evidence"] for one in again["contenders"] if one["results"]}
    assert evidence == {"celery": "new", "celery-once": "old"}
    assert [one["name"] for one in again["contenders"]] == [contender.name for contender in CONTENDERS]
