"""Every number and every absolute word of the documentation leads to what shows it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.quick.tidy import rules_claims as rules
from tests.quick.tidy.sources import files, offences
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCS: Final = ROOT / "docs"
RENDERED: Final = "test_the_page_is_what_the_kept_results_render_to"
HELD_WHOLE: Final = {
    "explanation/lock-comparison.md": f"quick/tidy/test_lock_comparison.py::{RENDERED}",
    "reference/celery-dedup-compared.md": f"quick/tidy/test_dedup_comparison.py::{RENDERED}",
    "reference/command-line.md": "real/programs/test_command.py::test_the_reference_page_is_what_the_help_says",
    "reference/lock-kinds.md": "quick/unit/test_lock_kinds.py::test_the_reference_page_is_what_the_records_say",
    "reference/python.md": "quick/unit/test_python_reference.py::test_the_page_is_what_the_docstrings_say",
    "reference/worker-settings.md": (
        "quick/unit/test_worker_settings.py::test_the_reference_page_is_what_the_settings_say"
    ),
}
"""Pages that a command prints -> the test, in tests/, that compares the whole page."""


def pages() -> list[Path]:
    return [*files("docs/how-to", suffix=".md"), *files("docs/tutorial", suffix=".md")]


def test_every_claim_has_a_marker() -> None:
    assert offences(rules.unmarked, pages()) == []


def test_every_marker_leads_to_a_test_a_result_or_the_value_it_names() -> None:
    assert offences(partial(rules.misled, root=ROOT), pages()) == []


def test_every_page_that_a_command_prints_is_compared_by_a_test() -> None:
    assert [rules.shows_nothing(f"tests/{target}", ROOT) for target in HELD_WHOLE.values()] == [""] * len(HELD_WHOLE)


ONE_LIMIT = "A message has up to 100 orders."
CODE = (
    "LIMIT: Final = 100\nTTL_MS = 30 * 1_000\nclass Terms:\n    wait: float = 0.25\ndef call(*, tries: int = 5): ...\n"
)
TEST = "def test_a_limit() -> None: ...\n"
NEEDS_A_MARKER = [
    ONE_LIMIT,
    "It is never lost.",
    "At most one holds it.",
    "- first\n- It lasts 5 s.\n- third",
    "| a | b |\n| --- | --- |\n| wait | 5 s |",
    f"{ONE_LIMIT}\n\n<!-- example -->",
    f"{ONE_LIMIT}\n<!-- background -->",
]
NEEDS_NONE = [
    "# 3 ways\n\nIt waits.",
    "Call `wait(5)`, see [there](page-2.md).",
    "```python\nwait(5)\n```",
    "    make 5",
    "1. first\n2. second",
    "On Redis 7.0 and Python 3.11, in UTF-8.",
    f"{ONE_LIMIT}\n<!-- example -->",
    f"{ONE_LIMIT} <!-- example -->",
    f"1. {ONE_LIMIT}\n   <!-- shown: a -->",
]
LEADS = [
    "shown: tests/test_a.py::test_a_limit",
    "shown: docs/results/figures.json",
    "set: code.py::LIMIT",
    "set: code.py::LIMIT, code.py::LIMIT",
]
MISLEADS = [
    "shown: tests/test_a.py::test_b",
    "shown: tests/test_b.py::test_a_limit",
    "shown: code.py",
    "shown: notes.txt",
    "shown",
    "seen: tests/test_a.py::test_a_limit",
    "set: code.py::MOST",
    "set: code.py::Terms.wait",
    "set: code.py::call.tries",
]


def test_a_block_that_claims_something_without_a_marker_is_noticed() -> None:
    for text in NEEDS_A_MARKER:
        assert [line for line, _ in rules.unmarked(text)] == [2 if text.startswith("-") else 1]
    assert [text for text in NEEDS_NONE if list(rules.unmarked(text))] == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Lay out a repository in which markers may lead somewhere."""
    for name, text in {
        "code.py": CODE,
        "tests/test_a.py": TEST,
        "docs/results/figures.json": "{}",
        "notes.txt": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_marker_that_leads_nowhere_or_to_another_number_is_noticed(root: Path) -> None:
    found = {marker: len(list(rules.misled(f"{ONE_LIMIT} <!-- {marker} -->", root))) for marker in (*LEADS, *MISLEADS)}
    assert found == dict.fromkeys(LEADS, 0) | dict.fromkeys(MISLEADS, 1)


def test_a_number_may_be_said_with_its_unit_or_in_a_word(root: Path) -> None:
    for said, name, wrong in (
        ("30 s", "TTL_MS", 0),
        ("half a minute", "TTL_MS", 1),
        ("0.25 s", "Terms.wait", 0),
        ("250 ms", "Terms.wait", 0),
        ("five", "call.tries", 0),
    ):
        assert len(list(rules.misled(f"It waits for {said}. <!-- set: code.py::{name} -->", root))) == wrong
