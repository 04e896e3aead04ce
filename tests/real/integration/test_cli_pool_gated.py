"""`segmented pool` of a gated pool whose process is killed between the two sides: the same command finishes it."""

from collections.abc import Callable
from typing import Final

import pytest

from segmented import Pool, RedisStore
from segmented.orders import Gate
from segmented.protocol.wire import load_script
from segmented.servers import ValkeyServer
from tests.support.command_line import ran, started
from tests.support.proxy import RedisProxy

SKU: Final = "mug"
CHANGES: Final = {
    "restock": ("restock", SKU, "5", "--id", "change"),
    "withdraw": ("withdraw", SKU, "5", "--id", "change"),
    "resize": ("resize", SKU, "4"),
}
AFTER: Final = {"restock": (15, 2), "withdraw": (5, 2), "resize": (10, 4)}
SECONDS: Final = 120.0


@pytest.mark.parametrize(
    ("name", "is_request_passed"), [("restock", False), ("withdraw", True), ("resize", False)], ids=CHANGES
)
def test_a_change_killed_between_the_two_sides_is_finished_by_the_same_command(
    name: str,
    store: RedisStore,
    open_gate: Callable[..., Gate],
    valkey: ValkeyServer,
    postgres_database: str,
    *,
    is_request_passed: bool,
) -> None:
    gate, pool = open_gate(postgres_database), Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    words = ["pool", *CHANGES[name], "--database", postgres_database]
    script = load_script("resize" if name == "resize" else "restock")
    store.client.script_load(script.text)  # else the first request that has its digest is answered NOSCRIPT
    with RedisProxy(valkey.url) as proxy:
        hold = proxy.hold_replies if is_request_passed else proxy.hold
        hold(script.sha.encode())
        with started(*words, url=proxy.url) as run:
            assert proxy.holding.wait(SECONDS)
            run.kill()
            run.communicate(timeout=SECONDS)
    state, totals = pool.state(), gate.totals(SKU)
    assert ((state.stocked, state.segment_count) == AFTER[name]) == is_request_passed
    assert (totals.quota, len(totals.segments)) == {"restock": (15, 2), "withdraw": (10, 2), "resize": (10, 4)}[name]
    assert len(gate.unfinished_changes(SKU)) == (name != "resize")
    done = ran(*words, url=valkey.url)
    assert (done.returncode, done.stderr, "before" in done.stdout) == (0, "", is_request_passed)
    assert (pool.state().stocked, pool.state().segment_count) == AFTER[name]
    totals = gate.totals(SKU)
    assert (totals.quota, gate.unfinished_changes(SKU), pool.audit().is_clean) == (pool.state().stocked, (), True)
