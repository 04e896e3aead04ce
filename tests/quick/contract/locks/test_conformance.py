"""Every starred row of the catalogue of lock bugs, over every kind of lock and both colours that it applies to."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.contract.locks.contenders.ours import CONTENDERS, make
from tests.support.contract.locks.lab import Lab
from tests.support.contract.locks.rows import Row, RowFailed, all_rows

APPLICABLE: Final = [
    (row, name) for row in all_rows() for name in CONTENDERS if make(name).offers.issuperset(row.needs)
]


LONG_LIVES: Final = {"B4": 0.5, "C1": 10.0, "C2": 10.0, "C3": 10.0, "D3": 1.0}
"""Row -> seconds of its shortest lease, so that none ends by itself before the row has it end."""
SLACK: Final = 30.0


@pytest.fixture
def patient_attempts(row: Row, patient_attempts: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  # it comes first
    """Have the product's own bounds for the row that is about them, and frequent renewals in long lives."""
    if row.row_id == "E2":
        monkeypatch.undo()
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 60)


@pytest.mark.parametrize(("row", "name"), APPLICABLE, ids=str)
def test_a_lock_does_what_its_row_asks(row: Row, name: str, lab_urls: list[str]) -> None:
    contender = make(name)
    with Lab(contender, lab_urls) as lab:
        if row.row_id not in contender.kind.holes:
            contender.shortest_ttl = LONG_LIVES.get(row.row_id, contender.shortest_ttl)
            contender.answer_timeout = lab.soon = lab.slack = SLACK
            row.case(lab)
            return
        with pytest.raises(RowFailed):
            row.case(lab)
