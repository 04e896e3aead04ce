"""The rows of the comparison of locks on each of our kinds. By hand (long): what takes time, and the other colour."""

from typing import Final

import pytest

from tests.support.contract.locks.contenders.ours import CONTENDERS, make
from tests.support.contract.locks.lab import Lab
from tests.support.contract.locks.rows import Row, RowFailed, all_rows

TIMED: Final = {"A13", "B4", "B10", "C1", "C2", "C3", "D3", "D4", "D5", "D9", "D16", "E2", "F2", "J7"}
"""Rows in which time passes; what they ask is decided elsewhere by a clock that a test moves."""
LONG_LIVES: Final = {"B4": 0.5, "C1": 10.0, "C2": 10.0, "C3": 10.0, "D3": 1.0}
"""Row -> seconds of its shortest lease, so that none ends by itself before the row has it end."""
SLACK: Final = 120.0
ANSWER_SECONDS: Final = 60.0
"""For the answer of each server of a quorum: the longest that it takes."""


def chosen() -> list[object]:
    """Return each row with each contender it applies to; real are every kind in asyncio, and the plain lock."""
    found: list[object] = []
    for row in all_rows():
        for name in CONTENDERS:
            if not make(name).offers.issuperset(row.needs):
                continue
            is_real = row.row_id not in TIMED and ("-asyncio-redis" in name or name.startswith("Lock-threads-redis"))
            found.append(pytest.param(row, name, marks=[] if is_real else [pytest.mark.long], id=f"{row}-{name}"))
    return found


@pytest.mark.parametrize(("row", "name"), chosen())
def test_a_lock_does_what_its_row_asks(
    row: Row, name: str, lab_urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if row.row_id == "E2":
        monkeypatch.undo()  # it is about the product's own bounds
    else:
        monkeypatch.setattr("segmented.stores.quorum.lane.PATIENCE", ANSWER_SECONDS)
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 60)
    contender = make(name)
    with Lab(contender, lab_urls) as lab:
        if row.row_id not in contender.kind.holes:
            contender.shortest_ttl = LONG_LIVES.get(row.row_id, contender.shortest_ttl)
            contender.answer_timeout = ANSWER_SECONDS
            lab.soon = lab.slack = SLACK
            row.case(lab)
            return
        with pytest.raises(RowFailed):
            row.case(lab)
