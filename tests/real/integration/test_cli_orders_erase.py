"""`segmented orders erase`, on a real server and both databases; and with kills in the middle."""

import json
import os
import signal
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from segmented import Order, Outbox, Pool, RedisStore
from segmented.models import Cart
from segmented.orders import Gate, audit_both, erase_customer, relay
from segmented.servers import ValkeyServer
from segmented.stock import Carts, ShardedPool
from tests.support.command_line import ran
from tests.support.pools.gated_shop import everything
from tests.support.pools.gating import each_database

ALICE: Final = "alice@example.org"


@pytest.fixture
def pools(store: RedisStore, gate: Gate) -> dict[str, Pool | ShardedPool]:
    """Alice has orders in a gated and relayed pool, in one with a limit, in shards, and a cart; Bob has, too."""
    gated, limited = Pool(store, "gated", gate=gate), Pool(store, "limited", outbox=Outbox())
    sharded = ShardedPool(store, "sharded")
    gated.open(stock=100, segments=4)
    limited.open(stock=100, segments=4, limit_per_customer=9)
    sharded.open(stock=100, segments=4, shards=2)
    for pool in (gated, limited, sharded):
        for number in range(3):
            for customer in (ALICE, "bob"):
                pool.reserve(Order(f"{customer[0]}-{number}", 2, customer))
                pool.confirm(f"{customer[0]}-{number}")
        pool.reserve(Order("gone", 1, ALICE))
        pool.cancel("gone")
    carts = Carts(store)
    carts.reserve(Cart("basket", [("limited", 1)], ALICE))
    carts.confirm("basket", home="limited")
    relay(gated.plain, gate)
    return {"gated": gated, "limited": limited, "sharded": sharded}


def are_clean(pools: dict[str, Pool | ShardedPool], gate: Gate) -> bool:
    gated = pools["gated"]
    assert isinstance(gated, Pool)
    return audit_both(gated.plain, gate).is_clean and all(pool.audit().is_clean for pool in pools.values())


def names_her(store: RedisStore, database: str) -> list[str]:
    keys, rows = everything(store, database)
    kept = {key: value for key, value in keys.items() if not key.endswith(":ledger")}
    # What the server keeps of a deleted entry, until its node is full, no command reads.
    kept |= {key: str(store.client.xrange(key)).encode() for key in keys if key.endswith(":ledger")}
    named = [key for key, value in kept.items() if ALICE.encode() in bytes(value)]  # type: ignore[call-overload]  # a dump
    return named + [name for name, found in rows.items() if ALICE in str(found)]


@each_database
def test_nothing_names_the_customer_afterwards_and_all_audits_are_clean(
    pools: dict[str, Pool | ShardedPool], store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    words = ["orders", "erase", "--customer", ALICE, "--database", order_database]
    tried = json.loads(ran(*words, "--dry-run", "--json", "-", url=valkey.url).stdout)
    assert (tried["is_changed"], tried["ledgers"], tried["undecided"]) == (False, 4, 0)
    assert len(names_her(store, order_database)) > 6
    done = json.loads(ran(*words, "--yes", "--json", "-", url=valkey.url).stdout)
    assert (done["records"], done["ledgers"], done["undecided"]) == (tried["records"], 4, 0)
    assert (names_her(store, order_database), are_clean(pools, gate)) == ([], True)
    again = json.loads(ran(*words, "--yes", "--json", "-", url=valkey.url).stdout)
    assert (again["is_changed"], again["records"], again["rows"]) == (False, 0, 0)
    for name, pool in pools.items():
        assert pool.state().confirmed == (13 if name == "limited" else 12)
        pool.reserve(Order("next", 9, ALICE))  # within the limit: what she had bought is erased
        pool.confirm("next")
    assert are_clean(pools, gate)
    order = pools["gated"].order("b-0")
    assert order is not None
    assert order.customer_id == "bob"


def test_an_order_that_is_not_decided_keeps_its_customer_until_it_is(
    pools: dict[str, Pool | ShardedPool], store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    pools["gated"].reserve(Order("held", 1, ALICE))
    words = ["orders", "erase", "--customer", ALICE, "--database", order_database, "--yes"]
    first = ran(*words, url=valkey.url)
    assert (first.returncode, first.stderr) == (
        1,
        "1 order is not decided and keeps the customer: erase again once it is\n",
    )
    assert are_clean(pools, gate)
    pools["gated"].confirm("held")
    assert ran(*words, url=valkey.url).returncode == 0
    assert (names_her(store, order_database), are_clean(pools, gate)) == ([], True)


def test_archives_that_name_the_customer_are_listed_and_an_unknown_one_is_said(
    pools: dict[str, Pool | ShardedPool], order_database: str, valkey: ValkeyServer, tmp_path: Path
) -> None:
    file = tmp_path / "limited.jsonl.gz"
    pools["limited"].close()
    assert ran("pool", "archive", "limited", "--to", str(file), "--yes", url=valkey.url).returncode == 0
    words = ("orders", "erase", "--database", order_database, "--archive", str(file), "--yes", "--customer")
    said = ran(*words, ALICE, url=valkey.url)
    assert said.returncode == 1
    assert [line.partition(" names the customer: ")[0] for line in said.stderr.splitlines()] == [str(file)]
    for unknown in ("alice", "nobody@example.org"):
        said = ran(*words, unknown, url=valkey.url)
        why = f"nothing names the customer {unknown}: check the id, unless it was erased before\n"
        assert (said.returncode, said.stderr) == (0, why)


def test_a_relayed_ledger_needs_its_database(pools: dict[str, Pool | ShardedPool], valkey: ValkeyServer) -> None:
    done = ran("orders", "erase", "--customer", ALICE, "--yes", url=valkey.url)
    assert pools["gated"].order("a-0") is not None
    assert (done.returncode, done.stderr) == (
        2,
        "segmented: the ledger of pool 'gated' is relayed: name the order database, which has it too\n",
    )


def test_killed_at_every_step_and_run_again_all_audits_are_clean(
    pools: dict[str, Pool | ShardedPool], store: RedisStore, gate: Gate, order_database: str, valkey: ValkeyServer
) -> None:
    step = 0
    while killed_at(order_database, valkey.url, step):
        step += 3
        assert are_clean(pools, gate), step
    assert step >= 30
    assert (names_her(store, order_database), are_clean(pools, gate)) == ([], True)


def killed_at(database: str, url: str, step: int) -> bool:
    """Erase in a process that is killed after so many operations. Returns whether it was, or was done before."""
    child = os.fork()
    if child == 0:
        with RedisStore.from_url(url) as store, Gate(database) as gate:
            execute, done = store.execute, [0]

            def counted(operation: Any, *, deadline: float = inf) -> Any:  # noqa: ANN401  # of any answer
                answer = execute(operation, deadline=deadline)
                done[0] += 1
                if done[0] > step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return answer

            store.execute = counted  # type: ignore[method-assign]  # to be killed
            erase_customer(store, ALICE, gate=gate)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
