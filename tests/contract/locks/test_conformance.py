"""Every starred row of the catalogue of lock bugs, over every kind of lock and both colours that it applies to."""

from __future__ import annotations

from typing import Final

import pytest

from tests.contract.locks.contenders.ours import CONTENDERS, make
from tests.contract.locks.lab import Lab
from tests.contract.locks.rows import Row, RowFailed, all_rows

APPLICABLE: Final = [
    (row, name) for row in all_rows() for name in CONTENDERS if make(name).offers.issuperset(row.needs)
]


@pytest.mark.parametrize(("row", "name"), APPLICABLE, ids=str)
def test_a_lock_does_what_its_row_asks(row: Row, name: str, lab_urls: list[str]) -> None:
    contender = make(name)
    with Lab(contender, lab_urls) as lab:
        if row.row_id not in contender.kind.holes:
            row.case(lab)
            return
        with pytest.raises(RowFailed):
            row.case(lab)
