"""The parts of the embedded servers that need no server."""

import os
from pathlib import Path

import pytest

from segmented.servers.folders import Claim, is_short
from segmented.servers.supervised import Stops
from segmented.servers.valkey import configuration


def test_valkey_with_a_data_folder_appends_to_a_file_there() -> None:
    lines = configuration(Path("/run/x"), kept=Path("/data/valkey"), extra={}).splitlines()
    assert 'dir "/data/valkey"' in lines
    assert "appendonly yes" in lines


def test_stopping_is_bounded_by_the_sum_of_its_steps() -> None:
    assert Stops(((2, 10.0), (3, 5.0), (9, 5.0))).seconds == 20.0


@pytest.mark.parametrize(("length", "short"), [(89, True), (90, False)])
def test_a_socket_path_has_at_most_103_bytes(length: int, *, short: bool) -> None:
    assert is_short(Path("/" + "x" * (length - 1))) is short


def test_the_claim_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "lock").write_text("1234567\n")
    Claim.take(tmp_path / "valkey").hand_over()
    assert (tmp_path / "valkey" / "lock").read_text() == f"{os.getpid()}\n"
