"""A judge of carts over gated pools that uses no code of `segmented`: plain SQL and plain Redis reads must agree."""

import json
from typing import Final

import redis

from segmented.models import Cart
from tests.support.pools.both_sides import ORDERS, name_of, sql_rows

FINAL: Final = "cxef"
CONFIRMED: Final = "confirmed"


def sold_in_sql(database: str) -> dict[str, dict[str, int]]:
    """The confirmed lines of each cart, after checking that no cart is half sold: units by sku, by cart id."""
    sold: dict[str, dict[str, int]] = {}
    for sku, order_id, state, quantity in sql_rows(database, ORDERS):
        if state == CONFIRMED:
            sold.setdefault(order_id.rpartition("~")[0], {})[sku] = int(quantity)
    return sold


def lapse_cart(server_url: str, cart: Cart) -> None:
    """Let the holds of a cart and of its lines be over."""
    with redis.Redis.from_url(server_url, decode_responses=True) as server:
        home = f"seg:{{{cart.home}:0}}:"
        found = server.hget(f"{home}carts", cart.cart_id)
        if found is None:  # it was never opened
            return
        state, _, rest = str(found).split("\t", 2)
        server.hset(f"{home}carts", cart.cart_id, f"{state}\t1\t{rest}")
        server.zadd(f"{home}unfinished", {cart.cart_id: 1}, xx=True)
        for sku, _ in cart.lines:
            server.zadd(f"seg:{{{sku}:0}}:holds", {cart.order_id: 1}, xx=True)


def judged_carts(server_url: str, database: str, *, are_all_final: bool = True) -> dict[str, str]:
    """Return the state of each cart, after checking that both sides agree on all of its lines.

    Unless all are final: a cart that is not in Redis may be sold in SQL, and the lines of one that is may be reserved,
    because its process died in between.
    """
    sold, states = sold_in_sql(database), {}
    with redis.Redis.from_url(server_url, decode_responses=True) as server:
        records = {
            (name_of(tag), order_id): record.split("\t")[0]
            for tag in sorted(key.removesuffix("orders") for key in server.scan_iter("seg:{*}:orders"))
            for order_id, record in server.hgetall(f"{tag}orders").items()
        }
        for key in server.scan_iter("seg:{*}:carts"):
            for cart_id, raw in server.hgetall(key).items():
                head, _, content = raw.partition("\n")
                _, *pairs = json.loads(content)
                lines, state = dict(pairs), head[0]
                own = {sku: found for (sku, each), found in records.items() if each.rpartition("~")[0] == cart_id}
                assert sold.get(cart_id, lines) == lines, (cart_id, "half sold", sold[cart_id])
                is_sold = cart_id in sold
                if state in FINAL:
                    assert (state == "c") is is_sold, (cart_id, state, sold.get(cart_id))
                    ends = set("c") if is_sold else set("xe")
                    assert set(own.values()) <= ends | (set() if are_all_final else {"r"}), (cart_id, state, own)
                else:
                    assert not are_all_final, (cart_id, state)
                states[cart_id] = state
    return states
