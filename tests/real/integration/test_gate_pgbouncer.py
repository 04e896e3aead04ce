"""The gate behind PgBouncer in transaction mode: refused with the cure, and after the cure every order is stored."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import make_url, text

from segmented.errors import InvalidInput
from segmented.locks.dead_letters import Work
from segmented.locks.dead_letters_sql import SqlDeadLetters
from segmented.orders import Gate, connect
from segmented.orders.answers import Return
from segmented.orders.return_rows import ReturnStored
from tests.fixtures.pgbouncer import PgBouncer
from tests.support.pools.gating import NEW, claim

ORDERS = 200
THREADS = 8


@pytest.mark.parametrize("ignored", ["", "options"])
def test_a_pooler_that_drops_the_settings_is_refused_until_the_role_has_them(
    start_pgbouncer: Callable[..., PgBouncer], postgres_database: str, ignored: str
) -> None:
    url = start_pgbouncer(pool_size=3, ignored=ignored).in_front_of(postgres_database)
    with pytest.raises(InvalidInput, match="is behind a connection pooler that drops statement_timeout, ") as refused:
        connect(url)
    cures = re.findall(r"ALTER ROLE [^;]+;", str(refused.value))
    assert len(cures) == 3
    engine = connect(postgres_database)
    with engine.connect() as connection:
        for cure in cures:
            connection.execute(text(cure.replace(" SET ", f" IN DATABASE {engine.url.database} SET ", 1)))
    engine.dispose()
    pooler = start_pgbouncer(pool_size=3, ignored=ignored)  # a new one: its connections are new, too
    with Gate(connect(pooler.in_front_of(postgres_database), pool_size=THREADS)) as gate:
        gate.create()
        gate.open("mug", [ORDERS])
        with ThreadPoolExecutor(THREADS) as threads:
            answers = list(threads.map(lambda number: gate.confirm(**claim(f"o-{number}")), range(ORDERS)))
        assert answers == [NEW] * ORDERS
        gate.open("cup", [1])
        with gate.transaction(**(claim("one more") | {"sku": "cup"})) as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
        assert (gate.confirmed_units("mug"), gate.confirmed_units("cup")) == (ORDERS, 1)
        returns = [Return("mug", f"o-{number}", 1, f"r-{number}") for number in range(ORDERS)]
        with ThreadPoolExecutor(THREADS) as threads:
            found = list(threads.map(gate.returns.begin, returns))
            list(threads.map(lambda one: gate.returns.finish(one, 1, 1), returns))
        assert found == [ReturnStored(1, "begun", None, 0)] * ORDERS
        assert (gate.confirmed_units("mug"), gate.returns.begun("mug")) == (0, ())


def test_dead_letters_of_two_processes_share_the_connection_of_a_pooler(
    start_pgbouncer: Callable[..., PgBouncer], postgres_database: str
) -> None:
    """Each prepares its statements under the same names, if it prepares any."""
    url = make_url(start_pgbouncer(pool_size=1).in_front_of(postgres_database)).set(drivername="postgresql+psycopg")
    stores = [SqlDeadLetters(url.render_as_string(hide_password=False)) for _ in range(2)]
    for number in range(20):
        stores[number % 2].record(Work("ship", work_id=str(number)))
    assert len(list(stores[0].pending())) == 20
    for store in stores:
        store.close()
