"""The programs of docs/how-to/whole-programs.md, each as it stands, against real servers."""

import importlib
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from segmented import Gate, Pool, RedisStore
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until
from tests.support.paths import ROOT
from tests.support.pools.both_sides import judged
from tests.support.servers.nodes import free_ports
from tests.support.workers.worker_processes import clean_environment

PROGRAMS: Final = ROOT / "docs" / "how-to" / "examples" / "programs"
PAGE: Final = ROOT / "docs" / "how-to" / "whole-programs.md"
LINES_MAX: Final = 80
TRIES_MAX: Final = 20
SOON: Final = 60.0
CHECKOUTS: Final = {
    "checkout": ("flask", "--app", "checkout", "run", "--port"),
    "async_checkout": ("uvicorn", "async_checkout:shop", "--log-level", "warning", "--port"),
}


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda program: program.stem)
def test_a_program_has_eighty_lines_at_most(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


# --- the checkout, plain and with an order database, for threads and for asyncio ---


def line_of(name: str, *, is_durable: bool) -> str:
    """Return the line with which a checkout makes its pool: the program's own, or the page's with an order database."""
    own = next(line for line in (PROGRAMS / f"{name}.py").read_text().splitlines() if line.startswith("pool = "))
    durable = own.replace("hold=600)", f"hold=600, gate=segmented.{GATES[name]}(os.environ['SHOP_ORDERS']))")
    return durable.replace("'", '"') if is_durable else own


GATES: Final = {"checkout": "Gate", "async_checkout": "AsyncGate"}


class Shop:
    """A checkout that runs in a process of its own."""

    def __init__(self, port: int) -> None:
        self._port, self._url = port, f"http://127.0.0.1:{port}"

    def post(self, path: str, **body: object) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer."""
        request = urllib.request.Request(  # noqa: S310  # our own server
            self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=SOON) as answer:  # noqa: S310  # as above
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def buy(self, path: str) -> int:
        """Try until no other request keeps us waiting, and return the last status."""
        status = 503
        for _ in range(TRIES_MAX):
            status, _ = self.post(path, card="good")
            if status != 503:
                break
        return status

    def answers(self) -> bool:
        """Return whether it serves."""
        try:
            socket.create_connection(("127.0.0.1", self._port), SOON).close()
        except OSError:
            return False
        return True


@contextmanager
def serving(name: str, folder: Path, settings: dict[str, str], *, is_durable: bool) -> Iterator[Shop]:
    """Run the program as its first lines say, with the page's one changed line if it is durable."""
    program = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    text = program.replace(line_of(name, is_durable=False), line_of(name, is_durable=is_durable))
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", *CHECKOUTS[name], str(port)]
    with subprocess.Popen(command, cwd=folder, env=clean_environment(folder, settings)) as process:
        try:
            shop = Shop(port)
            wait_until(shop.answers, seconds=SOON)
            yield shop
        finally:
            process.terminate()
            process.wait(SOON)


@pytest.mark.parametrize(("name", "kind"), [("checkout", "plain"), ("async_checkout", "durable")])
def test_a_checkout_sells_its_stock_once(
    name: str, kind: str, private_valkey: ValkeyServer, sqlite_url: str, tmp_path: Path
) -> None:
    is_durable = kind == "durable"
    settings = {"SHOP_REDIS": private_valkey.url, "SHOP_ORDERS": sqlite_url}
    with RedisStore(private_valkey.url) as store:
        if is_durable:
            with Gate(sqlite_url) as gate:
                gate.create()
                Pool(store, "poster", gate=gate).open(stock=5, segments=2)
        else:
            Pool(store, "poster").open(stock=5, segments=2)
        with serving(name, tmp_path, settings, is_durable=is_durable) as shop, ThreadPoolExecutor(4) as buyers:
            assert shop.post("/orders/a", card="good") == (201, {"order": "a", "state": "confirmed"})
            assert shop.post("/orders/a", card="good") == (200, {"order": "a", "state": "confirmed"})
            assert shop.post("/orders/b", card="declined")[0] == 402
            assert shop.post("/orders/c", card="slow")[0] == 202
            assert shop.post("/payments/c", charged=True) == (200, {"order": "c", "state": "confirmed"})
            assert shop.post("/orders/d", card="slow")[0] == 202
            assert shop.post("/payments/d", charged=False) == (200, {"order": "d", "state": "cancelled"})
            assert shop.post("/payments/nobody", charged=True)[0] == 400
            assert shop.post("/payments/c", charged=False) == (409, {"order": "c", "state": "confirmed"})
            crowd = [f"/orders/e{number}" for number in range(8)]
            codes = sorted(buyers.map(shop.buy, crowd))
            assert codes == [201] * 3 + [409] * 5
        assert Pool(store, "poster").state().confirmed == 5
        assert Pool(store, "poster").audit().is_clean
    if is_durable:
        assert judged(private_valkey.url, sqlite_url) == (5, 5, 0)


def test_the_page_shows_the_one_line_of_the_durable_checkouts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [line_of(name, is_durable=True) in page for name in CHECKOUTS] == [True, True]


# --- the others ---


def run(name: str, *words: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a command."""
    return subprocess.run(
        [sys.executable, str(PROGRAMS / name), *words],
        env=clean_environment(folder, settings),
        capture_output=True,
        text=True,
        timeout=2 * SOON,
        check=False,
    )


def test_of_two_nightly_jobs_at_once_one_does_the_work(private_valkey: ValkeyServer, tmp_path: Path) -> None:
    settings = {"JOB_REDIS": private_valkey.url, "JOB_DATABASE": f"sqlite:///{tmp_path}/reports.sqlite"}
    assert run("nightly.py", "2026-11-27", folder=tmp_path, **settings).stdout == "2026-11-27: 27 orders\n"
    assert run("nightly.py", "2026-11-27", folder=tmp_path, **settings).stdout == "2026-11-27: it is done\n"
    with redis.Redis.from_url(private_valkey.url) as other:
        other.set("seg:lock:{nightly report 2026-11-28}", "another machine", px=600_000)
    beside = run("nightly.py", "2026-11-28", folder=tmp_path, **settings)
    assert (beside.stdout, beside.returncode) == ("2026-11-28: another machine is at it\n", 0)


def test_a_sale_is_set_up_and_taken_down(private_valkey: ValkeyServer, tmp_path: Path) -> None:
    def sale(*words: str) -> str:
        done = run("sale.py", *words, folder=tmp_path, SHOP_REDIS=private_valkey.url)
        return done.stdout + done.stderr

    assert sale("end").startswith("pool 'poster' is not open: `segmented pool list` shows")
    assert sale("open") == sale("open") == "open: 500 free, 0 reserved, 0 sold\n"
    assert re.match(r"Restocked\(.*units=20.*replay=False", sale("restock", "d-1", "20"))
    assert re.match(r"Restocked\(.*units=20.*replay=True", sale("restock", "d-1", "20"))
    with RedisStore(private_valkey.url) as store:
        Pool(store, "poster").reserve("o-1", quantity=2, customer_id="ann")
        Pool(store, "poster").confirm("o-1")
    assert sale("end").splitlines() == ["closed: 518 free, 0 reserved, 2 sold", "order,customer,units", "o-1,ann,2"]
    assert "state closed instead of open" in sale("open")


def test_a_celery_app_sells_and_sends_each_receipt_once(
    private_valkey: ValkeyServer,
    valkey: ValkeyServer,
    segmented_broker_url: str,
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outgoing = tmp_path / "outgoing"
    settings = {
        "SHOP_BROKER": segmented_broker_url,
        "SHOP_RECORDS": valkey.url,
        "SHOP_OUTGOING": str(outgoing),
        "SEGMENTED_URL": private_valkey.url,
        "SEGMENTED_DATABASE": sqlite_url,
    }
    with Gate(sqlite_url) as gate:
        gate.create()
    for setting, value in settings.items():
        monkeypatch.setenv(setting, value)
    monkeypatch.syspath_prepend(str(PROGRAMS))
    shop = importlib.import_module("shop_tasks")
    command = [sys.executable, "-m", "celery", "-A", "shop_tasks", "worker", "--beat", "-P", "threads", "-c", "4"]
    environment = clean_environment(tmp_path, settings)
    environment["PYTHONPATH"] += f":{PROGRAMS}"
    with (
        RedisStore(private_valkey.url) as store,
        subprocess.Popen([*command, "--loglevel", "WARNING"], cwd=tmp_path, env=environment) as process,
    ):
        try:
            Pool(store, "poster").open(stock=3, segments=2)
            handles = [shop.buy(store, f"o-{number}") for number in range(4)]
            sold = [shop.receipt_for(handle, "ann@example.org") for handle in (*handles, handles[0])]
            assert sorted(sold) == [False] + [True] * 4
            wait_until(lambda: outgoing.exists() and len(outgoing.read_text().splitlines()) == 3, seconds=SOON)
            assert Pool(store, "poster").audit().is_clean
        finally:
            process.terminate()
            assert process.wait(SOON) == 0
            shop.app.close()
            sys.modules.pop("shop_tasks")
    assert sorted(outgoing.read_text().split()) == sorted(
        [word for number in range(4) if sold[number] for word in (f"o-{number}", "ann@example.org")]
    )


def test_the_tests_of_a_shop_pass_without_a_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PROGRAMS / "test_shop.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * SOON, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
