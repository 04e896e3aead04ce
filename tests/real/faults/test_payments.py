"""The shops of the page about payments: each order that was paid is sold once, or its money goes back."""

from pathlib import Path
from typing import Final

import pytest

from segmented.servers import ValkeyServer
from tests.support.workers.payments import HOW, SERVED, give_back, market, storm, verdict

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ORDERS: Final = 66
KILLS: Final = 3
STOCK: Final = 60
"""Units of each of two skus: too few for all orders."""


@pytest.mark.parametrize("name", SERVED)
def test_a_storm_of_webhooks_and_kills_sells_each_paid_order_once_or_refunds_it(
    name: str, tmp_path: Path, valkey: ValkeyServer, postgres_database: str
) -> None:
    with market(name, tmp_path, valkey.url, postgres_database, stock=STOCK) as shop:
        storm(shop, orders=ORDERS, kills=KILLS)
        shop.deliver_all()
        paid = [payment for payment in shop.books() if payment["status"] == "paid"]
        assert {payment["how"] for payment in paid} == {*HOW}
        late = [payment for payment in paid if payment["how"] == "late"]
        shop.end_holds(*((payment["sku"], payment["order_id"]) for payment in late))
        for payment in late:
            shop.send_late(payment["id"])
        assert shop.ask("reconcile")[0] == 200  # for the webhooks that never came
        shop.deliver_all()
        assert shop.can("return") == (give_back(shop) > 0)
        shop.end_holds()
        assert {kind: wrong for kind, wrong in verdict(shop).items() if wrong} == {}
        assert shop.kills == KILLS
