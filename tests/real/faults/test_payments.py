"""The shops of the page about payments: each order that was paid is sold once, or its money goes back.

The shops of the page stand under a storm of webhooks, customers and kills; a judge looks at what is left.
"""

import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from sqlalchemy import make_url

from segmented import Gate, Pool, RedisStore
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until
from tests.support.paths import ROOT
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.processes import Logged
from tests.support.servers.nodes import free_ports
from tests.support.workers.worker_processes import clean_environment

PROGRAMS: Final = ROOT / "docs" / "how-to" / "examples" / "payments"
SERVED: Final = {
    "flask_shop": ("-m", "flask", "--app", "flask_shop", "run", "--port"),
    "fastapi_shop": ("-m", "uvicorn", "fastapi_shop:shop", "--log-level", "warning", "--port"),
    "django_shop": ("-m", "django", "runserver", "--noreload"),
}
CALLS: Final = {
    "flask_shop": {"orders", "change", "return"},
    "fastapi_shop": {"orders", "extend"},
    "django_shop": {"orders", "change"},
}
"""What customers can ask of each shop."""
SKUS: Final = ("poster", "mug")
SOON: Final = 60.0
TRY_SECONDS: Final = 30.0
HOW: Final = ("once", "twice", "four at once", "wrong order", "late", "never")


def call(url: str, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    """Return the status and the answer of a POST; 0 if nobody has answered."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})  # noqa: S310  # our own servers
    try:
        with urllib.request.urlopen(request, timeout=TRY_SECONDS) as answer:  # noqa: S310  # as above
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        return error.code, json.loads(text) if text.startswith("{") else text
    except (OSError, HTTPException, ValueError):
        return 0, None


@dataclass
class Market:
    """A shop, its payment provider and their servers."""

    name: str
    folder: Path
    server: str
    database: str
    port: int
    provider: str
    said: Path
    environment: dict[str, str]
    shop: Logged | None = None
    is_up: threading.Event = field(default_factory=threading.Event)
    kills: int = 0
    answered: int = 0
    """How many calls of customers were answered, so that kills come while there is work."""
    statuses: Counter[int] = field(default_factory=Counter)

    def start_shop(self) -> None:
        """Start the shop's server, and wait until it listens."""
        words = (sys.executable, *SERVED[self.name], str(self.port))
        self.shop = Logged(words, self.said, cwd=self.folder, environment=self.environment)
        wait_until(self._listens, seconds=SOON)
        self.is_up.set()

    def _listens(self) -> bool:
        assert self.shop is not None
        assert self.shop.process.poll() is None, self.shop.said()
        return call(f"http://127.0.0.1:{self.port}/nothing", {})[0] == 404

    def end(self) -> None:
        if self.shop is not None:
            self.shop.kill()

    def kill_shop(self) -> None:
        """Kill the shop's server, and start it again."""
        assert self.shop is not None
        self.is_up.clear()
        self.shop.signal(signal.SIGKILL)
        self.shop.process.wait(SOON)
        self.kills += 1
        self.start_shop()

    def ask(self, action: str, **body: Any) -> tuple[int, Any]:  # noqa: ANN401  # whatever JSON holds
        """Ask the shop as a browser does, again until it answers."""
        found: list[tuple[int, Any]] = []

        def is_answered() -> bool:
            self.is_up.wait(SOON)
            found.append(call(f"http://127.0.0.1:{self.port}/{action}", body))
            self.statuses[found[-1][0]] += 1
            return found[-1][0] not in {0, 500, 503}

        wait_until(is_answered, seconds=2 * SOON)
        self.answered += 1
        return found[-1]

    def can(self, action: str) -> bool:
        return action in CALLS[self.name]

    def pay(self, payment_id: str, how: str) -> None:
        assert call(f"{self.provider}/payments/{payment_id}/pay", {"how": how})[0] == 200

    def send_late(self, payment_id: str) -> None:
        assert call(f"{self.provider}/payments/{payment_id}/send", {})[0] == 200

    def pay_unasked(self, sku: str, order_id: str, units: int, how: str, attempt: int = 1) -> str:
        """Pay for something that the shop has not asked for; return the payment's id."""
        body = {"sku": sku, "order_id": order_id, "units": units, "attempt": attempt}
        status, payment = call(f"{self.provider}/payments", body)
        assert status == 200
        self.pay(payment["id"], how)
        return str(payment["id"])

    def books(self) -> list[dict[str, Any]]:
        """Return all payments as the provider has them."""
        status, found = call(f"{self.provider}/payments/all/list", {})
        assert status == 200
        return list(found)

    def deliver_all(self) -> None:
        """Wait until every webhook was accepted."""
        wait_until(lambda: not any(payment["undelivered"] for payment in self.books()), seconds=2 * SOON)

    def end_holds(self, *orders: tuple[str, str]) -> None:
        """Let the holds of these orders, or of all, end now."""
        with redis.Redis.from_url(self.server) as server:
            for sku in SKUS:
                key = f"seg:{{{sku}:0}}:holds"
                named = [order_id for one, order_id in orders if one == sku]
                held: Any = named if orders else [each.decode() for each in server.zrange(key, 0, -1)]
                for order_id in held:
                    server.zadd(key, {order_id: 1}, xx=True)
        self.expire()

    def expire(self) -> None:
        """Do what the workers do every second."""
        with RedisStore.from_url(self.server) as store, Gate(self.database) as gate:
            for sku in SKUS:
                while Pool(store, sku, gate=gate).expire():
                    pass


@contextmanager
def market(name: str, folder: Path, server: str, database: str, *, stock: int) -> Iterator[Market]:
    """Open two pools, and start a provider and a shop."""
    with RedisStore.from_url(server) as store, Gate(database) as gate:
        gate.create()
        for sku in SKUS:
            Pool(store, sku, gate=gate).open(stock=stock, segments=4)
    home = folder / name
    shutil.copytree(PROGRAMS, home, ignore=shutil.ignore_patterns("__pycache__"))
    port, provider_port = free_ports(2)
    url = make_url(database).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    provider = f"http://localhost:{provider_port}"
    settings = {"SHOP_REDIS": server, "SHOP_DATABASE": url, "SHOP_PROVIDER": provider}
    settings["DJANGO_SETTINGS_MODULE"] = "django_shop.settings"
    environment = clean_environment(folder, settings)
    with ExitStack() as stack:
        words = (sys.executable, "provider.py", provider, f"http://127.0.0.1:{port}/webhooks")
        started = Logged(words, folder / "provider-said", cwd=home, environment=environment)
        stack.callback(started.kill)
        wait_until(lambda: "ready" in started.said(), seconds=SOON)
        made = Market(name, home, server, database, port, provider, folder / "shop-said", environment)
        stack.callback(made.end)
        if name == "django_shop":
            tables = (sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")
            subprocess.run(tables, cwd=home, env=environment, check=True, timeout=SOON)
        made.start_shop()
        yield made


# --- the storm ---


def customer(shop: Market, number: int) -> None:
    """Do what one customer does: order, perhaps change it, pay or not, pay twice, or pay for something else."""
    sku, order_id, units = SKUS[number % 2], f"o-{number}/1", 1 + number % 3
    status, answer = shop.ask("orders", sku=sku, order_id=order_id, units=units)
    if status == 409:  # sold out, or expired while the shop was away
        return
    assert (status, answer["units"]) in {(200, units), (201, units)}, (status, answer)
    if number % 4 == 0 and shop.can("extend"):
        assert shop.ask("extend", sku=sku, order_id=order_id)[0] in {200, 409}
    payer = threading.Thread(target=shop.pay, args=(answer["id"], HOW[number % len(HOW)]))
    if number % 11:  # else nobody pays
        payer.start()
    if number % 5 == 0 and units > 1 and shop.can("change"):
        assert shop.ask("change", sku=sku, order_id=order_id, units=units - 1)[0] in {200, 409}
    if number % 7 == 0:
        shop.pay_unasked(SKUS[1 - number % 2], order_id, 1, "twice")
        shop.pay_unasked(sku, f"nobody-{number}", 1, "four at once")
        shop.pay_unasked(sku, order_id, units, "twice", attempt=2)
    if payer.ident is not None:
        payer.join(SOON)


def storm(shop: Market, *, orders: int, kills: int) -> None:
    """Let all customers come, eight at a time, and kill the shop now and then, while they do."""
    chance, numbers = random.Random(1), itertools.count(1)
    moments = sorted(chance.randrange(orders // 10, orders) for _ in range(kills))
    with ThreadPoolExecutor(8) as customers:
        done = [customers.submit(customer, shop, next(numbers)) for _ in range(orders)]

        def is_due(moment: int) -> bool:
            return shop.answered >= moment or all(one.done() for one in done)

        for moment in moments:
            wait_until(partial(is_due, moment), seconds=4 * SOON)
            shop.kill_shop()
            shop.expire()
        for one in done:
            one.result()


def give_back(shop: Market) -> int:
    """Return a unit of each third order that has an invoice, twice under one id; return how many were."""
    if not shop.can("return"):
        return 0
    invoiced = sql_rows(shop.database, "SELECT sku, order_id FROM invoices ORDER BY sku, order_id")[::3]
    for sku, order_id in invoiced:
        for _ in range(2):
            status, answer = shop.ask("return", sku=sku, order_id=order_id, units=1, return_id=f"rma-{order_id}")
            assert status == 200, answer
    return len(invoiced)


# --- the judge ---


def verdict(shop: Market) -> dict[str, list[Any]]:
    """Return what is wrong, by its kind, from the provider's books, plain SQL and plain Redis alone."""
    stocked, sold, free = judged(shop.server, shop.database)
    rows = sql_rows(shop.database, "SELECT sku, order_id, quantity FROM segmented_orders WHERE state = 'confirmed'")
    returned = Counter[tuple[str, str]]()
    for sku, order_id, units in sql_rows(shop.database, "SELECT sku, order_id, units FROM segmented_returns"):
        returned[sku, order_id] += units
    invoices = [tuple(row) for row in sql_rows(shop.database, "SELECT sku, order_id, payment_id FROM invoices")]
    in_sql = {(sku, order_id): quantity for sku, order_id, quantity in rows}
    ever = {*in_sql, *returned}
    paid = [payment for payment in shop.books() if payment["status"] == "paid"]
    kept = Counter[tuple[str, str]]()
    for payment in paid:
        kept[payment["sku"], payment["order_id"]] += payment["units"] - sum(payment["refunds"].values())
    bought = {payment["id"] for payment in paid}
    by_payment = {payment_id for _, _, payment_id in invoices}
    return {
        "orders sold without an invoice": sorted(ever - {(sku, order_id) for sku, order_id, _ in invoices}),
        "invoices of no sold order": [one for one in invoices if one[:2] not in ever],
        "invoices of no payment": [one for one in invoices if one[2] not in bought],
        "money kept and units sold differ": [
            (each, kept[each], in_sql.get(each, 0)) for each in {*kept, *in_sql} if kept[each] != in_sql.get(each, 0)
        ],
        "refunds of sold orders": [
            payment["id"]
            for payment in paid
            if payment["id"] in by_payment
            and sum(payment["refunds"].values()) == payment["units"]
            and in_sql.get((payment["sku"], payment["order_id"]), 0)
        ],
        "units lost": [stocked - sold - free] if stocked != sold + free else [],
    }


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
