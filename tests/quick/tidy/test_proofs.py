"""What `tests/proofs.toml` names for each page exists, and docs/reference/proofs.md has all of it."""

from pathlib import Path
from typing import Final

import pytest

from tests.quick.tidy.rules_claims import blocks, sets_nothing, shows_nothing
from tests.support.paths import ROOT
from tests.support.proofs import DOCS, proofs, table

RENDERED: Final = "test_the_page_is_what_the_kept_results_render_to"
HELD_WHOLE: Final = {
    "explanation/lock-comparison.md": f"quick/tidy/test_lock_comparison.py::{RENDERED}",
    "reference/celery-beat-compared.md": (
        "quick/tidy/test_comparisons.py::test_the_page_of_schedulers_is_what_its_kept_results_render_to"
    ),
    "reference/celery-dedup-compared.md": f"quick/tidy/test_comparisons.py::{RENDERED}",
    "reference/command-line.md": "real/programs/test_command.py::test_the_reference_page_is_what_the_help_says",
    "reference/lock-kinds.md": "quick/unit/test_library.py::test_the_reference_page_is_what_the_records_say",
    "reference/metrics.md": "real/integration/test_events.py::test_the_reference_page_is_what_the_tables_say",
    "reference/python.md": "quick/unit/test_library.py::test_the_page_is_what_the_docstrings_say",
    "reference/worker-settings.md": (
        "quick/unit/test_worker_settings.py::test_the_reference_page_is_what_the_settings_say"
    ),
}
"""Pages that a command prints -> the test, in tests/, that compares the whole page."""


def test_the_page_is_what_the_file_says() -> None:
    written = (DOCS / "reference" / "proofs.md").read_text(encoding="utf-8")
    assert written == table(), "`python -m tests.support.proofs > docs/reference/proofs.md` writes it"


def test_every_test_and_result_exists_and_every_constant_is_a_number_of_its_page() -> None:
    wrong = [f"{page}: {target}: {why}" for page in proofs() for target, why in astray(page, ROOT)]
    assert (wrong, len(proofs()) > 20) == ([], True)


def astray(page: str, root: Path) -> list[tuple[str, str]]:
    """Return the targets of a page that show nothing, each with the reason."""
    text = (root / "docs" / page).read_text(encoding="utf-8")
    numbers = {number for block in blocks(text) for number in block.numbers}
    targets = proofs(root)[page]
    found = [(target, shows_nothing(target, root)) for target in targets.get("shown", [])]
    found += [(target, sets_nothing(target, root, numbers)) for target in targets.get("set", [])]
    return [(target, why) for target, why in found if why]


def test_every_page_that_a_command_prints_is_compared_by_a_test() -> None:
    assert [shows_nothing(f"tests/{target}", ROOT) for target in HELD_WHOLE.values()] == [""] * len(HELD_WHOLE)


@pytest.mark.parametrize(
    ("kind", "target", "is_wrong"),
    [
        ("shown", "tests/test_a.py::test_a_limit", False),
        ("shown", "docs/results/figures.json", False),
        ("shown", "tests/test_a.py::test_b", True),
        ("shown", "tests/test_b.py::test_a_limit", True),
        ("shown", "notes.txt", True),
        ("set", "code.py::LIMIT", False),
        ("set", "code.py::TTL_MS", False),
        ("set", "code.py::call.tries", True),
        ("set", "code.py::MOST", True),
    ],
)
def test_a_target_that_shows_nothing_is_noticed(tmp_path: Path, kind: str, target: str, *, is_wrong: bool) -> None:
    for name, text in {
        "code.py": "LIMIT: Final = 100\nTTL_MS = 30 * 1_000\ndef call(*, tries: int = 5): ...\n",
        "tests/test_a.py": "def test_a_limit() -> None: ...\n",
        "docs/results/figures.json": "{}",
        "notes.txt": "",
        "docs/page.md": "A message has up to 100 orders, and 30 s.\n",
        "tests/proofs.toml": f'["page.md"]\n{kind} = ["{target}"]\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [name for name, _ in astray("page.md", tmp_path)] == ([target] if is_wrong else [])
