"""The rows on locks that are kept in a SQL database and in ZooKeeper; their servers are found, or the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.contract.locks.contenders.elsewhere import CONTENDERS
from tests.support.contract.locks.lab import Lab
from tests.support.contract.locks.rows import Row, all_rows

if TYPE_CHECKING:
    from tests.fixtures.zookeeper import ZooKeeperNode

SLACK: Final = 30.0
APPLICABLE: Final = [
    (row, name)
    for row in all_rows()
    for name, (_, contender) in CONTENDERS.items()
    if contender("").offers.issuperset(row.needs)
]


@pytest.fixture
def zookeeper_url(zookeeper: ZooKeeperNode) -> str:
    return zookeeper.url


@pytest.mark.parametrize(("row", "name"), APPLICABLE, ids=str)
def test_a_lock_does_what_its_row_asks(row: Row, name: str, request: pytest.FixtureRequest) -> None:
    fixture, contender = CONTENDERS[name]
    with Lab(contender(request.getfixturevalue(fixture)), []) as lab:
        lab.soon = lab.slack = SLACK
        row.case(lab)
