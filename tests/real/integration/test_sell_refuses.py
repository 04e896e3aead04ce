"""What `segmented sell` refuses with one sentence and exit code 2, with nothing changed on any server."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from segmented import Gate, Pool, RedisStore
from segmented.cli.main import run
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from segmented.stores.redis.edge import CURE

WHY = f"which may evict locks and stock, {CURE}"
TEN_IN_TWO = ("--stock", "10", "--segments", "2")


def one_order(folder: Path, quantity: int = 1) -> Path:
    file = folder / "orders.csv"
    file.write_text(f"order_id,quantity\na,{quantity}\n")
    return file


class Refuse:
    """Run the command in this process: `code`, nothing printed or written, and one sentence, which is returned."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._json = folder / "refused.json"
        self._capsys = capsys

    def __call__(self, file: Path, *options: str, notes: int = 0, code: int = 2) -> str:
        exit_code = run(["sell", str(file), "--json", str(self._json), *options])
        printed, errors = self._capsys.readouterr()
        *before, sentence = errors.splitlines()
        assert (exit_code, printed, len(before), self._json.exists()) == (code, "", notes, False)
        return sentence.removeprefix("segmented: ")


def sold(own_servers: tuple[str, ...]) -> None:
    """Do what a sale of order `a` does."""
    _, url, _, database = own_servers
    with RedisStore(url) as store, Gate(database) as gate:
        gate.create()
        pool = Pool(store, "default", gate=gate)
        pool.open(stock=10, segments=2)
        pool.reserve("a")
        pool.confirm("a")


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    return Refuse(tmp_path, capsys)


def test_a_wrong_line_is_refused_before_any_server_is_asked(tmp_path: Path, refuse: Refuse) -> None:
    file = one_order(tmp_path, quantity=1_000_000_001)
    sentence = f"{file}, line 2: quantity '1000000001' must be a whole number from 1 to 1,000,000,000"
    assert refuse(file, *TEN_IN_TWO, "--url", "redis://127.0.0.1:1") == sentence


def test_an_open_pool_is_not_sold_as_another(
    tmp_path: Path, own_servers: tuple[str, ...], valkey: ValkeyServer, refuse: Refuse
) -> None:
    file = one_order(tmp_path)
    sold(own_servers)
    with redis.Redis.from_url(valkey.url) as client:
        sequence = client.hget(shard_keys("default").meta, "sequence")
        for stock, segments in (("11", "2"), ("10", "3")):
            open_as = "pool 'default' is open with stock 10 in 2 segments"
            sentence = f"{open_as}, not with stock {stock} in {segments} segments"
            assert refuse(file, "--stock", stock, "--segments", segments, *own_servers) == sentence
        assert client.hget(shard_keys("default").meta, "sequence") == sequence

    here = f"{file}, line 2: order_id 'a' has quantity 2 and customer None"
    sentence = f"{here}, but the pool knows it with quantity 1 and customer None"
    assert refuse(one_order(tmp_path, quantity=2), *TEN_IN_TWO, *own_servers) == sentence


def test_a_pool_and_a_database_that_do_not_belong_together_are_refused(
    tmp_path: Path, own_servers: tuple[str, ...], sqlite_url: str, refuse: Refuse
) -> None:
    file = one_order(tmp_path)
    _, url, _, database = own_servers
    sold(own_servers)
    lacks = (
        "pool 'default' is open, but the order database has no rows for it: name the database it was opened with; if "
        "that was the temporary one of an earlier sale, close the pool and sell under another sku"
    )
    assert refuse(file, *TEN_IN_TWO, "--url", url, "--database", sqlite_url) == lacks
    known = "the order database knows pool 'default' as open, with 1 unit sold, but the stock's server has no such pool"
    assert refuse(file, *TEN_IN_TWO, "--database", database, notes=1) == f"{known}: name the server it was opened on"


def test_a_wrong_password_and_an_evicting_server_are_refused(
    tmp_path: Path, start_valkey: Callable[..., ValkeyServer], refuse: Refuse
) -> None:
    wrong = start_valkey(config={"requirepass": "secret"}).url.replace("unix://", "unix://:guess@")
    evicting = start_valkey(config={"maxmemory-policy": "allkeys-lru"}).url
    for url, sentence in (
        (wrong, f"{wrong.replace('guess', '***')} refused the password or account of the URL"),
        (evicting, f"the server at {evicting} has maxmemory-policy allkeys-lru, {WHY}"),
    ):
        assert refuse(one_order(tmp_path), *TEN_IN_TWO, "--url", url) == sentence


def test_servers_that_do_not_answer_are_refused(
    tmp_path: Path, own_servers: tuple[str, ...], valkey: ValkeyServer, refuse: Refuse
) -> None:
    file = one_order(tmp_path)
    for options, begin in (
        (("--url", "redis://127.0.0.1:1"), "no server answers at redis://127.0.0.1:1: "),
        (
            ("--database", "postgresql://u:pw@127.0.0.1:1/x"),
            "the order database postgresql://u:***@127.0.0.1:1/x cannot be used: ",
        ),
        ((*own_servers, "--broker", "redis://:pw@127.0.0.1:1/0"), "no broker answers at redis://:***@127.0.0.1:1/0: "),
        (
            (*own_servers, "--broker", "foo://host"),
            "--broker cannot be used: foo://host is not a broker that Celery knows",
        ),
        (
            (*own_servers, "--broker", "redis://127.0.0.1:1/0?pasword=hunter2"),
            "--broker cannot be used: redis://127.0.0.1:1/0?pasword=*** is not a broker that Celery can use: ",
        ),
    ):
        code = 2 if "foo://host" in options or "pasword" in options[-1] else 1  # none answers: it may be back
        assert refuse(file, *TEN_IN_TWO, *options, code=code).startswith(begin)
    with redis.Redis.from_url(valkey.url) as client:
        assert client.dbsize() == 0
