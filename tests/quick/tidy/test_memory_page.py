"""The page about memory is what was measured."""

from __future__ import annotations

import json
from typing import Any, Final

from bench.micro.memory.kinds import KINDS
from bench.micro.memory.page import render
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "memory.md"
RESULTS: Final[dict[str, Any]] = json.loads((ROOT / "bench" / "micro" / "memory" / "results.json").read_text("utf-8"))


def test_the_page_is_what_the_kept_results_render_to() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(RESULTS)


def test_every_kind_was_measured() -> None:
    assert [(kind["name"], kind["summary"]) for kind in RESULTS["kinds"]] == [
        (kind.name, kind.summary) for kind in KINDS
    ]


def test_an_archive_gives_back_what_the_pool_took() -> None:
    left = [kind["after_archive"] / kind["memory"] for kind in RESULTS["kinds"] if kind["after_archive"] is not None]
    assert len(left) == 8
    assert max(left) < 0.2
