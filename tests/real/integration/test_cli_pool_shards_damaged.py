"""`segmented pool` on pools in shards that somebody else wrote to, or that lost keys: a sentence, and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.keys import shard_keys
from segmented.models import Shard
from segmented.stock import ShardedPool
from segmented.stores.redis import RedisStore
from tests.support.command_line import ran
from tests.support.contract.shards.sharding import at_home_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_shards")

SKU: Final = "concert"


class Damaged:
    """A pool of 90 units in 3 shards, and what is needed to damage it."""

    def __init__(self, store: RedisStore) -> None:
        """Open it."""
        self.pool = ShardedPool(store, SKU)
        self.pool.open(stock=90, segments=6, shards=3)
        self.store = store
        self.client = store.client
        self.names = [Shard(SKU, number, "a") for number in range(3)]
        assert [shard.sku for shard in self.pool.shards] == self.names


@pytest.fixture
def damaged(valkey: ValkeyServer) -> Iterator[Damaged]:
    with RedisStore.from_url(valkey.url) as store:
        yield Damaged(store)


def test_drift_that_cannot_be_mended_is_told_with_its_shard(damaged: Damaged, valkey: ValkeyServer) -> None:
    damaged.client.hset(shard_keys(damaged.names[2]).transfers, "received:0", "5 9")
    done = ran("pool", "repair", SKU, "--yes", url=valkey.url)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split("\t")[:3] for line in done.stdout.splitlines()[:2]] == [
        ["left", "2", "foreign write"],
        ["left", "between", "foreign write"],
    ]


def test_a_transfer_that_cannot_be_read_is_told_and_stops_only_what_needs_it(
    damaged: Damaged, valkey: ValkeyServer
) -> None:
    damaged.client.hset(shard_keys(damaged.names[0]).transfers, "away:1", "garbage")
    pool = damaged.pool
    assert pool.reserve("small", quantity=1).order_id == "small"
    with pytest.raises(PoolDrifted):
        pool.reserve("larger than there is", quantity=91)
    for command in (["audit", SKU], ["repair", SKU, "--yes"]):
        done = ran("pool", *command, url=valkey.url)
        assert (done.returncode, done.stderr) == (1, "")
        assert "transfer away:1 is not a number and units" in done.stdout
    shown = ran("pool", "show", SKU, url=valkey.url)
    assert (shown.returncode, shown.stderr.count("\n"), "transfer away:1" in shown.stderr) == (1, 1, True)


def test_a_note_that_was_deleted_does_not_bring_units_in_twice(damaged: Damaged, valkey: ValkeyServer) -> None:
    source, target = damaged.names[:2]
    for number in (1, 2):
        damaged.store.execute(op.SendUnits(source, 1, 10))
        damaged.store.execute(op.ReceiveUnits(target, 0, number, 10 * number, epoch=1))
        damaged.store.execute(op.AcknowledgeUnits(source, 1, number, epoch=1))
    damaged.client.hdel(shard_keys(target).transfers, "received:0")
    done = ran("pool", "repair", SKU, "--yes", url=valkey.url)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split("\t")[:3] for line in done.stdout.splitlines()[:2]] == [
        ["left", "1", "foreign write"],
        ["left", "between", "orphan transfer"],
    ]
    assert damaged.pool.state().available == 90


@pytest.mark.parametrize("away", ["away:1", "away:99"])
def test_a_transfer_on_the_way_that_was_never_sent_is_found(damaged: Damaged, valkey: ValkeyServer, away: str) -> None:
    damaged.client.hset(shard_keys(damaged.names[0]).transfers, away, "1 50")
    done = ran("pool", "audit", SKU, url=valkey.url)
    target = away.removeprefix("away:")
    assert (done.returncode, done.stdout.splitlines()[:2]) == (
        1,
        [
            f"shard 0: foreign write: transfer {away} is 1 with 50 units, which is not the last that was sent there",
            (
                "between shards: foreign write: "
                f"transfer 1 from shard 0 to shard {target} is in transit, but was never sent"
            ),
        ],
    )
    if away == "away:99":
        with pytest.raises(PoolDrifted):
            damaged.pool.finish_transfers()
    for _ in range(2):
        done = ran("pool", "repair", SKU, "--yes", url=valkey.url)
        places = [line.split("\t")[:2] for line in done.stdout.splitlines() if line.startswith("left")]
        assert (done.returncode, done.stderr, places) == (1, "", [["left", "0"], ["left", "between"]])
    assert damaged.pool.state().available == 90


def test_what_has_arrived_is_not_on_the_way_in_an_audit(damaged: Damaged) -> None:
    assert damaged.store.execute(op.SendUnits(damaged.names[0], 1, 5)) is not None
    assert damaged.pool.audit().away == 5
    damaged.store.execute(op.ReceiveUnits(damaged.names[1], 0, 1, 5, epoch=1))
    report = damaged.pool.audit()
    assert (report.away, report.is_clean, report.state.available) == (0, True, 90)


def test_a_shard_that_is_gone_is_one_sentence(damaged: Damaged, valkey: ValkeyServer) -> None:
    damaged.client.delete(shard_keys(damaged.names[1]).meta)
    for words in ("show", "audit", "resize 9", "repair --yes", "open --stock 90 --segments 6 --shards 3"):
        command, *options = words.split()
        done = ran("pool", command, SKU, *options, url=valkey.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("segmented: shard 1 of 'concert' was open and its keys are gone: ")


def test_an_order_database_is_not_told_of_a_pool_in_shards(
    damaged: Damaged, valkey: ValkeyServer, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'orders.db'}"
    for words in (["restock", SKU, "5", "--id", "a"], ["withdraw", SKU, "5", "--id", "a"], ["resize", SKU, "9"]):
        done = ran("pool", *words, "--database", database, url=valkey.url)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("segmented: pool 'concert' is in shards: it has no order database")
    words = ["open", SKU, "--stock", "9", "--segments", "3", "--gated", "--database", database, "--create-tables"]
    done = ran("pool", *words, url=valkey.url)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (1, "", [])
    assert done.stderr.startswith("segmented: 'concert' is sold in shards already: ")
    assert (damaged.pool.state().available, damaged.pool.state().segment_count) == (90, 6)


def test_a_transfer_to_a_shard_that_is_none_is_told_by_repair(damaged: Damaged, valkey: ValkeyServer) -> None:
    damaged.client.hset(shard_keys(damaged.names[0]).transfers, "sent:7", "1 5")
    done = ran("pool", "repair", SKU, "--yes", url=valkey.url)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split("\t")[:3] for line in done.stdout.splitlines()[:2]] == [
        ["left", "0", "foreign write"],
        ["left", "between", "orphan transfer"],
    ]


def test_units_that_went_in_are_told_although_another_shard_vanished(damaged: Damaged, valkey: ValkeyServer) -> None:
    restock_id = at_home_in(0, 3)[0]
    damaged.client.delete(*shard_keys(damaged.names[1]).listed())
    done = ran("pool", "restock", SKU, "5", "--id", restock_id, url=valkey.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "restocked: 5 units, 35 are free now\n", "")
    assert damaged.pool.shards[0].state().available == 35
