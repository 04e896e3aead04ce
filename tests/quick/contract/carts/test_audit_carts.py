"""The audit of carts."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest
import redis

from segmented import protocol as op
from segmented.keys import CartKeys, cart_keys, shard_keys
from segmented.models import Cart, Order
from segmented.protocol.carts import CartMove
from segmented.stock import AuditReport, Pool
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import FileArchive, archive_plan, lines_of, no_progress
from segmented.stock.audit import audit_plan
from segmented.stock.carts import finish_carts_plan
from tests.fixtures.stores import Side
from tests.support.contract.carts.carts import SHORT_MS, CartPools
from tests.support.pools.carting import ending_before, reserved_and_ended

LONG_MS = 600_000


def opened(side: Side) -> CartPools:
    """Ten units each of a, b and c."""
    pools = CartPools(side)
    for letter in "abc":
        pools.open(letter, 10)
    return pools


@pytest.fixture
def pools(side: Side) -> CartPools:
    return opened(side)


def report_of(pools: CartPools, letter: str) -> AuditReport:
    report = pools.side.run(audit_plan(pools.sku(letter)))[0]
    assert report.unread == ()
    assert report.is_clean == (not report.drift)
    return report


def named(pools: CartPools, letter: str, cart: Cart) -> list[str]:
    """Say what the audit of a pool names, with letters for the skus and the order."""
    told = [str(drift) for drift in report_of(pools, letter).drift]
    word = pools.sku("")
    return [line.replace(f"order {cart.order_id}:", "order:").replace(word, "") for line in told]


def reserved(pools: CartPools) -> Cart:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart)
    return cart


def decide(pools: CartPools, cart: Cart, state: CartMove, *, finished: bool = False) -> None:
    """Decide a cart as its plan does, without its lines."""
    pools.side.execute(op.DecideCart(cart.home, cart.cart_id, state))
    if finished:
        pools.side.execute(op.FinishCart(cart.home, cart.cart_id))


def pin(pools: CartPools, cart: Cart, letters: str = "ab") -> None:
    for letter in letters:
        pools.side.execute(op.PinOrder(pools.sku(letter), cart.order_id, cart.home))


# --- what is no drift ---


@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_a_cart_whose_process_died_before_any_step_is_no_drift_nor_is_its_completion(side: Side, end: str) -> None:
    deaths = [0]
    for step in range(1, 30):
        pools = opened(side)
        cart = pools.cart("cut", ("a", 1), ("b", 2), ("c", 3))
        side.run(ending_before(reserved_and_ended(cart, end, SHORT_MS), step, partial(deaths.append, step)))
        assert [report_of(pools, letter).drift for letter in "abc"] == [(), (), ()]
        side.pass_time(0.0 if side.server is not None else 100.0)
        for letter in "abc":
            pools.shops[letter].expire_due()
            assert report_of(pools, letter).drift == ()
        side.run(finish_carts_plan(cart.home, 10))
        assert [report_of(pools, letter).drift for letter in "abc"] == [(), (), ()]
        if deaths[-1] < step:
            break
    assert 12 < deaths[-1] < 29


# --- carts against their lines ---


@pytest.mark.parametrize("end", ["confirm", "cancel"])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_line_that_somebody_ended_under_a_cart_under_way_is_named(
    pools: CartPools, end: str, *, is_open: bool
) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    if is_open:
        pools.side.execute(op.OpenCart(cart, LONG_MS))
        pools.side.execute(op.Reserve(pools.sku("b"), Order(cart.order_id, 2), LONG_MS))
    else:
        pools.reserved(cart)
    (pools.shops["b"].confirm if end == "confirm" else pools.shops["b"].cancel)(cart.order_id)
    what = f"{'open' if is_open else 'reserved'}, but its order in pool 'b' was {end}{'l' * (end == 'cancel')}ed"
    assert named(pools, "a", cart) == [f"torn cart: order: cart 'c1' is {what} all the same"]
    assert named(pools, "b", cart) == []


@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_sold_cart_of_which_a_line_was_given_back_is_named(pools: CartPools, letter: str) -> None:
    cart = reserved(pools)
    pin(pools, cart)
    decide(pools, cart, "confirmed")
    pools.shops[letter].cancel(cart.order_id)
    what = f"its order in pool '{letter}' was cancelled, so the buyer lacks those units"
    assert named(pools, "a", cart) == [f"torn cart: order: cart 'c1' is confirmed, but {what}"]


@pytest.mark.parametrize("state", ["cancelled", "expired", "refused"])
def test_a_void_cart_of_which_a_line_was_sold_is_named(pools: CartPools, state: CartMove) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.side.execute(op.OpenCart(cart, LONG_MS))
    pools.shops["b"].reserved(cart.order_id, 2)
    decide(pools, cart, state)
    pools.shops["b"].confirm(cart.order_id)
    what = "its order in pool 'b' was confirmed, so those units are sold"
    assert named(pools, "a", cart) == [f"torn cart: order: cart 'c1' is {state}, but {what}"]


def test_a_sold_cart_of_which_a_line_may_lapse_is_named_until_it_is_confirmed(pools: CartPools) -> None:
    cart = reserved(pools)
    pin(pools, cart, "a")
    decide(pools, cart, "confirmed")
    what = "its order in pool 'b' may expire: confirm the cart again, or it there"
    assert named(pools, "a", cart) == [f"torn cart: order: cart 'c1' is confirmed, but {what}"]
    pools.confirm(cart)
    assert named(pools, "a", cart) == []


@pytest.mark.parametrize(("state", "end"), [("confirmed", "confirm"), ("cancelled", "cancel"), ("expired", "cancel")])
def test_a_hold_left_by_a_finished_cart_is_named_in_both_pools_and_ended_by_hand(
    pools: CartPools, state: CartMove, end: str
) -> None:
    cart = reserved(pools)
    pin(pools, cart)
    decide(pools, cart, state, finished=True)
    what = "on hold: confirm" if end == "confirm" else "on hold forever: cancel"
    assert named(pools, "a", cart) == [
        f"leaked hold: order: cart 'c1' is {state} and finished, but its order in pool '{letter}' is {what} it there"
        for letter in "ab"
    ]
    said = f"it is on hold forever, though cart 'c1' of 'a' is {state} and finished: {end} it"
    assert named(pools, "b", cart) == [f"leaked hold: order: {said}"]
    for letter in "ab":
        getattr(pools.shops[letter], end)(cart.order_id)
    assert [named(pools, letter, cart) for letter in "ab"] == [[], []]


# --- orders that are pinned for nobody ---


@pytest.mark.parametrize("letter", ["a", "b"])
def test_an_order_pinned_for_a_cart_unknown_to_its_home_is_named_until_it_is_ended(
    pools: CartPools, letter: str
) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.shops[letter].reserved(cart.order_id)
    pin(pools, cart, letter)
    told = "it is on hold forever for cart 'c1', unknown in its home 'a': cancel or confirm it"
    assert named(pools, letter, cart) == [f"leaked hold: order: {told}"]
    (drift,) = report_of(pools, letter).drift
    assert (drift.order_id, drift.name, drift.about) == (cart.order_id, "c1", "cart")
    pools.shops[letter].cancel(cart.order_id)
    assert named(pools, letter, cart) == []


def test_an_order_pinned_for_a_cart_of_a_pool_that_is_not_open_is_named(pools: CartPools) -> None:
    cart = pools.cart("c1", ("Z", 1), ("b", 2))
    pools.shops["b"].reserved(cart.order_id)
    pin(pools, cart, "b")
    told = "it is on hold forever for a cart of 'Z', but that pool is not open: cancel or confirm it"
    assert named(pools, "b", cart) == [f"leaked hold: order: {told}"]


def test_a_repair_leaves_carts_as_they_are_and_says_why(pools: CartPools) -> None:
    cart = reserved(pools)
    pin(pools, cart)
    decide(pools, cart, "confirmed", finished=True)
    pool: Pool = pools.side.pool(pools.sku("b"))
    done = pool.repair(pool.audit(), yes=True)
    assert (done.done_count, done.is_clean) == (0, False)
    (repair,) = done.repairs
    assert repair.order_id == cart.order_id
    assert repair.detail.endswith("confirm it: cannot be mended from the ledger, which does not record carts")
    pool.confirm(cart.order_id)
    assert pool.audit().is_clean


@pytest.fixture
def foreign_pools(plain_redis_side: Side) -> CartPools:
    """Ten units each of a and b."""
    made = CartPools(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    return made


@pytest.fixture
def cart(foreign_pools: CartPools) -> Cart:
    """A cart that is reserved."""
    made = foreign_pools.cart("c1", ("a", 1), ("b", 2))
    foreign_pools.reserved(made)
    return made


@pytest.fixture
def keys(foreign_pools: CartPools) -> CartKeys:
    return cart_keys(foreign_pools.sku("a"))


@pytest.fixture
def server(plain_redis_side: Side) -> redis.Redis:
    return plain_redis_side.raw()


def foreign_named(foreign_pools: CartPools, letter: str) -> list[str]:
    report = foreign_pools.side.run(audit_plan(foreign_pools.sku(letter)))[0]
    return [str(drift).replace(foreign_pools.sku(""), "") for drift in report.drift]


UNREADABLE: Final[tuple[str | bytes, ...]] = (
    *("", "abc", "r\t1\t", "r\t1\t\n", "q\t1\t\n[null]", "r\tx\t\n[null]", "r\t1\t\n{}", "r\t1\t\n5", "r\t1\t\n[5]"),
    *("r\t1\t\n[null]", 'r\t1\t\n[null,["a",true]]', 'r\t1\t\n[null,["a",1]]', "r\t1\t\n" + "[" * 100_000, b"\xff"),
)


def test_a_record_that_cannot_be_read_is_named(
    foreign_pools: CartPools, cart: Cart, keys: CartKeys, server: redis.Redis
) -> None:
    refusals = ("x", "[]", '["a","Nobody",{}]', '["a","SoldOut",{"x":1}]')
    for value in (*UNREADABLE, *(f"f\t1\t{refusal}\n{cart.content}" for refusal in refusals)):
        server.hset(keys.carts, "c1", value)
        assert foreign_named(foreign_pools, "a") == [
            "foreign write: the record of cart 'c1' cannot be read: put it right by hand"
        ]
        assert foreign_named(foreign_pools, "b") == []


def test_a_lost_record_leaves_a_name_and_pinned_orders(
    foreign_pools: CartPools, cart: Cart, keys: CartKeys, server: redis.Redis
) -> None:
    for letter in "ab":
        server.zadd(shard_keys(foreign_pools.sku(letter)).holds, {cart.order_id: 253_402_300_799_000})
    server.hdel(keys.carts, "c1")
    why = "it is on hold forever, but its record names no cart: finish its cart if it has one, or end it"
    nameless = f"leaked hold: order {cart.order_id}: {why}"
    assert foreign_named(foreign_pools, "a") == [
        "lost: cart 'c1' is to be finished, but has no record: remove it from `unfinished`",
        nameless,
    ]
    assert foreign_named(foreign_pools, "b") == [nameless]


@pytest.fixture
def archived_pools(side: Side) -> CartPools:
    """Two pools with a cart of both, which is confirmed."""
    made = CartPools(side)
    made.open("a", 10)
    made.open("b", 10)
    cart = made.cart("basket", ("a", 1), ("b", 2))
    made.reserved(cart)
    made.confirm(cart)
    return made


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_pool_whose_carts_have_lines_in_an_archived_pool_is_archived(
    archived_pools: CartPools, tmp_path: Path, order: str
) -> None:
    for letter in order:
        archived_pools.shops[letter].close()
        file = tmp_path / f"{letter}.jsonl"
        answer = archived_pools.side.run(archive_plan(archived_pools.sku(letter), FileArchive(file), no_progress))
        assert answer.orders == 1
        carts = sum('"record":"carts"' in line for line in lines_of(file))
        assert carts == (letter == "a")
        assert check_archive(lines_of(file), "here").confirmed == (1 if letter == "a" else 2)
