"""The published comparison of locks is what was measured, and all that there is to measure."""

import json
from typing import Any, Final

from tests.conformance.locks.page import render
from tests.conformance.locks.registry import PEERS
from tests.support.contract.locks.rows import all_rows
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "lock-comparison.md"
RESULTS: Final[dict[str, Any]] = json.loads(
    (ROOT / "tests" / "conformance" / "locks" / "results.json").read_text(encoding="utf-8")
)


def test_the_page_is_what_the_kept_results_render_to() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(RESULTS)


def test_every_row_was_run_on_every_lock() -> None:
    rows = [row.row_id for row in all_rows()]
    assert [(row["id"], row["must_hold"]) for row in RESULTS["rows"]] == [
        (row.row_id, row.must_hold) for row in all_rows()
    ]
    assert all(list(contender["results"]) == rows for contender in RESULTS["contenders"])


def test_the_libraries_were_those_that_are_pinned() -> None:
    pinned = {
        line for peer in PEERS for line in peer.requirements.read_text(encoding="utf-8").splitlines() if "==" in line
    }
    others = [contender for contender in RESULTS["contenders"] if not contender["is_ours"]]
    used = {f"{name}=={version}" for contender in others for name, version in contender["versions"].items()}
    assert len(others) == sum(len(peer.adapters) for peer in PEERS)
    assert {line for line in used if not line.startswith("python==")} <= pinned
