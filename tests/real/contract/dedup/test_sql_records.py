"""The contract of deduplication records over PostgreSQL and SQLite: the tests of the records in Redis and in memory."""

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from segmented.clock import SystemClock
from segmented.dedup import AsyncSqlRecords, SqlRecords
from tests.fixtures.stores import AsyncSide, Side, SyncSide
from tests.quick.contract.dedup.test_dedup_calls import *  # noqa: F403  # the same tests, over another `side`
from tests.quick.contract.dedup.test_dedup_claims import *  # noqa: F403  # as above
from tests.quick.contract.dedup.test_dedup_runs import *  # noqa: F403  # as above
from tests.quick.contract.dedup.test_dedup_upkeep import *  # noqa: F403  # as above
from tests.support.flavour import Flavour

for _name in (
    "test_a_namespace_is_found_by_what_is_held_in_it_and_by_a_key_that_it_knows",  # looks through the keys of Redis
    "test_messages_of_a_serial_key_run_in_the_order_in_which_they_came",  # compares times that are 20 ms apart
    "test_copies_that_wait_for_one_run_come_back_later_and_apart",  # its 100 calls have to take less than a second
):
    del globals()[_name]
SIDES = [Flavour("postgresql", "sync"), Flavour("postgresql", "async"), Flavour("sqlite", "sync")]


@pytest.fixture(params=SIDES, ids=str)
def side(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[Side]:
    flavour: Flavour = request.param
    url = f"sqlite:///{tmp_path}/records.sqlite"
    if flavour.store == "postgresql":
        url = request.getfixturevalue("postgres_database")
    engine = sqlalchemy.create_engine(url)
    SqlRecords(engine).create()
    if flavour.colour == "sync":
        made: Side = SyncSide(flavour, SqlRecords(engine), SystemClock())
        yield made
    else:
        asynchronous = create_async_engine(url)

        async def make(_: object) -> AsyncSqlRecords:
            return AsyncSqlRecords(asynchronous)

        made = AsyncSide(flavour, SystemClock(), make)
        yield made
        made.wait(asynchronous.dispose())
    made.close()
    engine.dispose()
