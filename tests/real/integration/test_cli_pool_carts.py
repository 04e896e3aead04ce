"""`segmented pool carts` and `finish-carts`: what processes that died left of carts is seen, and finished."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from segmented import Pool, RedisStore
from segmented.models import CartReserved
from segmented.orders import Gate
from segmented.plans import run_sync
from segmented.servers import ValkeyServer
from segmented.stock import Cart, Carts
from segmented.stock.carts import confirm_cart_plan
from tests.support.command_line import ran, started
from tests.support.pools.cart_sides import lapse_cart
from tests.support.pools.carting import ending_before

HOME, OTHER = "mug", "shirt"
SECONDS: Final = 120.0


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def carts(valkey: ValkeyServer) -> Iterator[Carts]:
    """Carts over two pools of 20 units."""
    with RedisStore.from_url(valkey.url) as store:
        for sku in (HOME, OTHER):
            Pool(store, sku).open(stock=20, segments=2)
        yield Carts(store)


def reserved(carts: Carts, cart_id: str) -> Cart:
    cart = Cart(cart_id, [(HOME, 1), (OTHER, 2)], customer_id="ann")
    assert isinstance(carts.reserve(cart), CartReserved)
    return cart


def leave_half_way(carts: Carts, valkey: ValkeyServer) -> None:
    """One cart has lapsed, one was sold by a process that died before its lines were, and one is bought just now."""
    lapse_cart(valkey.url, reserved(carts, "lapsed"))
    sold = reserved(carts, "sold")
    # 1 read, 2 and 3 pin, 4 decide, 5 and 6 confirm the lines
    run_sync(ending_before(confirm_cart_plan(HOME, sold.cart_id), 6, lambda: None), carts.store)
    reserved(carts, "lives")
    assert carts.unfinished(HOME).due_count == 2


def totals(carts: Carts) -> list[tuple[int, int, int]]:
    """Units available, reserved and confirmed in each pool, whose books are in order."""
    found = []
    for sku in (HOME, OTHER):
        report = Pool(carts.store, sku).audit()
        assert report.is_clean
        found.append((report.state.available, report.state.reserved, report.state.confirmed))
    return found


def test_carts_that_are_not_finished_are_listed_with_what_they_wait_for(carts: Carts, valkey: ValkeyServer) -> None:
    leave_half_way(carts, valkey)
    done = ran("pool", "carts", HOME, url=valkey.url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert sorted((row[0], row[1], row[3]) for row in rows[:2]) == [
        ("lapsed", "reserved", "1 mug, 2 shirt"),
        ("sold", "confirmed", "1 mug, 2 shirt"),
    ]
    assert all(row[2].endswith(" ago") for row in rows[:2])
    assert (rows[2][:2], rows[2][2] in {"in 10 min", "in 9 min"}) == (["lives", "reserved"], True)
    found = json.loads(ran("pool", "carts", HOME, "--json", "-", url=valkey.url).stdout)
    assert (found["sku"], found["count"], found["due_count"], len(found["carts"])) == (HOME, 3, 2, 3)
    last = found["carts"][2]
    assert 500_000 < last.pop("due_in_ms") <= 600_000
    assert last == {
        "cart_id": "lives",
        "state": "reserved",
        "is_due": False,
        "order_id": Cart("lives", [(HOME, 1), (OTHER, 2)], "ann").order_id,
        "customer_id": "ann",
        "lines": [{"sku": HOME, "quantity": 1}, {"sku": OTHER, "quantity": 2}],
    }
    few = ran("pool", "carts", HOME, "--limit", "1", url=valkey.url)
    assert (few.returncode, few.stdout.count("\n")) == (0, 1)
    assert few.stderr == "there are 3, 2 of them due: raise --limit to see more\n"
    none = ran("pool", "carts", OTHER, url=valkey.url)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "")


def test_carts_that_are_due_are_finished_and_a_second_run_finds_nothing_to_do(
    carts: Carts, valkey: ValkeyServer
) -> None:
    leave_half_way(carts, valkey)
    assert totals(carts) == [(17, 2, 1), (14, 6, 0)]
    first, again = (ran("pool", "finish-carts", HOME, url=valkey.url) for _ in range(2))
    assert (first.returncode, first.stdout, first.stderr) == (0, "finished 2 carts: 1 confirmed, 1 expired\n", "")
    assert (again.returncode, again.stdout) == (0, "nothing is finished: no cart was due\n")
    assert totals(carts) == [(18, 1, 1), (16, 2, 2)]
    assert [one.record.cart.cart_id for one in carts.unfinished(HOME).carts] == ["lives"]


def test_runs_at_the_same_time_finish_every_cart_once(carts: Carts, valkey: ValkeyServer) -> None:
    for number in range(9):
        lapse_cart(valkey.url, reserved(carts, f"cart-{number}"))
    assert carts.unfinished(HOME).due_count == 9
    runs = [started("pool", "finish-carts", HOME, url=valkey.url) for _ in range(2)]
    for run in runs:
        with run:
            _, wrong = run.communicate(timeout=SECONDS)
            assert (run.returncode, wrong) == (0, "")
    assert carts.unfinished(HOME).count == 0
    assert totals(carts) == [(20, 0, 0), (20, 0, 0)]


def test_a_cart_that_cannot_be_finished_is_named_and_the_others_are_finished(
    carts: Carts, valkey: ValkeyServer
) -> None:
    leave_half_way(carts, valkey)
    by_hand = reserved(carts, "by hand")
    Pool(carts.store, OTHER).confirm(by_hand.order_id)
    lapse_cart(valkey.url, by_hand)
    assert carts.unfinished(HOME).due_count == 3
    done = ran("pool", "finish-carts", HOME, url=valkey.url)
    assert (done.returncode, done.stdout) == (1, "finished 2 carts: 1 confirmed, 1 expired\n")
    assert done.stderr.startswith("cart by hand is not finished: ")
    assert (done.stderr.count("\n"), "'shirt'" in done.stderr) == (1, True)
    found = ran("pool", "finish-carts", HOME, "--json", "-", url=valkey.url)
    assert (found.returncode, json.loads(found.stdout)["failed"][0]["cart_id"]) == (1, "by hand")


@pytest.mark.parametrize("command", ["carts", "finish-carts"])
def test_bad_input_about_carts_is_one_sentence(carts: Carts, valkey: ValkeyServer, command: str) -> None:
    for words, code, sentence in (
        (["nowhere"], 1, "pool 'nowhere' is not open"),
        (["x" * 129], 2, "home of " if command == "carts" else "sku 'xxx"),
        ([HOME, "--limit", "0"], 2, "Invalid value for '--limit'"),
        ([HOME, "--limit", "many"], 2, "Invalid value for '--limit'"),
        ([], 2, "Missing argument 'SKU'"),
    ):
        done = ran("pool", command, *words, url=valkey.url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
        assert done.stderr.startswith(f"segmented: {sentence}")
    assert carts.unfinished(HOME).count == 0


def test_carts_of_gated_pools_are_finished_with_their_order_database_and_not_without(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    for sku in (HOME, OTHER):
        Pool(store, sku, gate=gate).open(stock=20, segments=2)
    cart = Cart("lapsed", [(HOME, 1), (OTHER, 2)])
    Carts(store, gate=gate).reserve(cart)
    lapse_cart(valkey.url, cart)
    bare = ran("pool", "finish-carts", HOME, url=valkey.url)
    assert (bare.returncode, bare.stdout) == (2, "")
    assert "pool 'mug' is gated: finish its carts with --database URL" in bare.stderr
    done = ran("pool", "finish-carts", HOME, "--database", order_database, url=valkey.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished 1 cart: 1 expired\n", "")
    assert gate.orders(OTHER, [cart.order_id])[cart.order_id].state == "void"
    Pool(store, "plain").open(stock=1, segments=1)
    other = ran("pool", "finish-carts", "plain", "--database", order_database, url=valkey.url)
    assert (other.returncode, "leave --database out" in other.stderr) == (2, True)
