"""`segmented orders` as an operator sees it: what waits for workers, one order, what was given up, and the way back."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.celery.settings import QUEUE
from segmented.keys import shard_keys
from segmented.models import Order, Shard
from segmented.models.submitted import BegunOrder
from segmented.orders import Decline, Gate
from segmented.orders.envelopes import take_envelope
from segmented.servers import ValkeyServer
from segmented.stock import Outbox, Pool, ShardedPool
from segmented.stores.redis import RedisStore
from tests.support import command_line
from tests.support.contract.parking import wait_until

SKU: Final = "mug"
WORKER: Final = "0f9c2d71aa44"
LONG_MS: Final = 600_000
REASON: Final = "ValueError: no such address"
MESSAGE: Final = '[[{"v": 2, "sku": "mug", "orders": ["order-52", "order-53"]}], {}]'
DIGESTS: Final = ("3fb1c7de0a45" + 20 * "0", "3fc2" + 28 * "1")


class OrderCommands:
    """A pool of 100 units, and the command line in this process."""

    def __init__(self, store: RedisStore, url: str) -> None:
        self.store, self.url = store, url
        self.pool = Pool(store, SKU)
        self.pool.open(stock=100, segments=2)

    def ran(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command_line.ran("orders", *words, url=self.url)

    def rows(self, *words: str) -> list[list[str]]:
        done = self.ran(*words)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def json(self, *words: str) -> Any:  # noqa: ANN401  # whatever the command found
        return json.loads(self.ran(*words, "--json", "-").stdout)

    def queue(self, order_id: str, sku: str = SKU, publish_after_ms: int = LONG_MS) -> None:
        self.store.execute(op.NotePool(sku, submits=True))
        self.store.execute(op.QueueOrders(sku, (Order(order_id, 2, "ann"),), publish_after_ms))

    def take(self, order_id: str, sku: str = SKU) -> None:
        self.store.execute(op.TakeOrders(sku, (order_id,), WORKER, LONG_MS, LONG_MS, LONG_MS, 5))

    def bury(self, order_id: str, sku: str = SKU, *, hold_ms: int = LONG_MS) -> None:
        self.queue(order_id, sku)
        self.give_up(order_id, sku, hold_ms=hold_ms)

    def give_up(self, order_id: str, sku: str = SKU, *, hold_ms: int = LONG_MS) -> None:
        self.take(order_id, sku)
        given_up = op.PutOff(
            sku, (order_id,), WORKER, LONG_MS, counts=True, begun_max=1, reason=REASON, hold_ms=hold_ms
        )
        self.store.execute(given_up)

    def keep(self, digest: str = DIGESTS[0], text: str = MESSAGE, queue: str = QUEUE) -> None:
        assert self.store.execute(op.KeepMessage(queue, digest, "the envelope has version 2", text))

    def dead_ids(self) -> list[str]:
        return sorted(found["order_id"] for found in self.json("dead")["orders"])


@pytest.fixture
def commands(valkey: ValkeyServer) -> Iterator[OrderCommands]:
    with RedisStore.from_url(valkey.url) as store:
        yield OrderCommands(store, valkey.url)


@pytest.fixture
def shards(commands: OrderCommands) -> list[Shard]:
    """A pool "poster" in three shards."""
    pool = ShardedPool(commands.store, "poster")
    pool.open(stock=30, segments=3, shards=3)
    return [shard.sku for shard in pool.shards if isinstance(shard.sku, Shard)]


# --- list ---


def test_the_list_counts_what_waits_what_is_due_and_what_is_dead(commands: OrderCommands) -> None:
    Pool(commands.store, "unused").open(stock=10, segments=2)
    commands.queue("a")
    commands.bury("b")
    assert commands.rows("list") == [[SKU, "1", "0", "-", "1"]]
    commands.queue("c", publish_after_ms=0)
    (row,) = commands.rows("list", SKU, SKU)
    assert re.fullmatch(r"[0-9]+\.[0-9] s", row.pop(3))
    assert row == [SKU, "2", "1", "1"]
    assert commands.rows("list", "unused") == [["unused", "0", "0", "-", "0"]]


def test_a_pool_that_vanished_is_listed_as_not_open(commands: OrderCommands) -> None:
    commands.store.execute(op.NotePool("gone", submits=True))
    assert commands.rows("list") == [["gone", "not open", "-", "-", "-"]]
    assert commands.json("list") == {"pools": [{"sku": "gone", "shard": None, "is_open": False}]}


def test_where_nothing_was_submitted_the_list_says_so(commands: OrderCommands) -> None:
    done = commands.ran("list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no order was submitted to any pool\n")


# --- show ---


def test_an_order_that_was_granted_names_its_holder_and_its_segment(commands: OrderCommands) -> None:
    pool = Pool(commands.store, "granted")
    pool.open(stock=10, segments=1)
    with pool.grant("a") as grant:
        said = shown(commands, "a", "granted")["in hand"]
        assert said.endswith("was granted segment 0: 'segmented lock list' says how long it has it")
        assert "granted segment 0" in command_line.ran("lock", "list", url=commands.url).stdout
        assert grant.segment == 0


def shown(commands: OrderCommands, order_id: str, sku: str = SKU) -> dict[str, str]:
    return {row[0]: row[1] for row in commands.rows("show", sku, order_id)}


def test_an_order_in_hand_is_shown_with_the_start_of_its_worker_and_for_how_long(commands: OrderCommands) -> None:
    commands.queue("a")
    commands.take("a")
    rows = shown(commands, "a")
    assert rows["state"] == "reserved: its units are taken, and a worker is to confirm it"
    assert re.fullmatch(r"2 \(2 from segment [01]\), on hold without an end", rows["units"])
    assert re.fullmatch(r"worker 0f9c2d71, for (10|9) min unless it renews", rows["in hand"])
    assert re.fullmatch(r"published again in (10|9) min", rows["next"])
    assert (rows["begun"], rows["published again"], rows["customer"]) == ("1 time", "0 times", "ann")
    assert WORKER not in commands.ran("show", SKU, "a", "--json", "-").stdout


def test_a_declined_order_is_shown_with_its_reason_from_the_order_database(
    commands: OrderCommands, order_database: str
) -> None:
    def pay(_: BegunOrder) -> None:
        raise Decline("card refused")

    with Gate(order_database) as gate:
        gate.create()
        pool = Pool(commands.store, "cup", gate=gate, outbox=Outbox())
        pool.open(stock=10, segments=2)
        pool.submit("a")
        take_envelope(pool.plain, ["a"], gate=gate, step=pay)
    rows = {row[0]: row[1] for row in commands.rows("show", "cup", "a", "--database", order_database)}
    assert (rows["state"], rows["reason"]) == ("cancelled: its units were given back", "card refused")


def test_a_dead_order_is_shown_with_its_reason_and_an_order_of_another_kind_too(commands: OrderCommands) -> None:
    commands.bury("a")
    rows = shown(commands, "a")
    assert (rows["state"], rows["reason"]) == ("dead: not published to workers until it is replayed", REASON)
    assert (rows["in hand"], rows["next"]) == ("nobody has it", "nothing: it is not in the outbox")
    assert re.fullmatch(r"[0-9]+\.[0-9] s", rows["dead for"])
    commands.pool.confirm("a")
    assert shown(commands, "a")["state"] == "confirmed: its units are sold"
    commands.bury("c", hold_ms=1)
    wait_until(lambda: commands.pool.expire() != ())
    assert (
        shown(commands, "c")["state"]
        == "expired: its hold lapsed, and its units were given back, though it was dead before"
    )
    commands.pool.reserve("b")
    assert shown(commands, "b")["state"] == "reserved: its units are taken, and it was not submitted to a worker"


def test_of_an_unknown_order_nothing_is_written_and_the_exit_code_is_one(commands: OrderCommands) -> None:
    done = commands.ran("show", SKU, "nobody", "--json", "-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "segmented: order 'nobody' is not known to the pool\n"


# --- dead ---


def test_dead_orders_and_kept_messages_are_listed_with_what_is_on_hold(commands: OrderCommands) -> None:
    commands.bury("a")
    commands.bury("b", hold_ms=1)
    wait_until(lambda: commands.pool.expire() != ())
    commands.keep()
    done = commands.ran("dead")
    assert done.stderr == "1 dead order keeps 2 units from other buyers until the holds lapse\n"
    listed, kept = done.stdout.split("\n\n")
    first, second = (line.split("\t") for line in listed.splitlines())
    assert [first[:3], first[5]] == [[SKU, "a", "1"], REASON]
    assert re.fullmatch(r"2 units, on hold for (10|9) min", first[4])
    assert (second[1], second[4]) == ("b", "expired by now")
    message = kept.rstrip("\n").split("\t")
    assert (message[0], message[2]) == (DIGESTS[0][:12], "the envelope has version 2")
    assert message[3] == f"{MESSAGE[:40]}..."
    assert all(re.fullmatch(r"[0-9]+\.[0-9] s", age) for age in (first[3], message[1]))


def test_in_json_the_set_is_complete(commands: OrderCommands) -> None:
    commands.bury("a")
    commands.keep()
    found = commands.json("dead", SKU)
    (order,), (message,) = found["orders"], found["messages"]
    assert (order.pop("at_ms") > 0, 0 <= order.pop("age_ms") < 60_000) == (True, True)
    whole = {"order_id": "a", "begun": 1, "reason": REASON, "state": "dead", "units_on_hold": 2}
    assert order == {"sku": SKU, "shard": None} | whole
    assert (message["digest"], message["text"]) == (DIGESTS[0], MESSAGE)


# --- replay ---


def test_a_replay_says_of_each_order_what_becomes_of_it(commands: OrderCommands) -> None:
    for order_id in ("a", "b", "c"):
        commands.bury(order_id, hold_ms=1 if order_id == "b" else LONG_MS)
    wait_until(lambda: commands.pool.expire() != ())
    done = commands.ran("replay", SKU, "a", "b", "a", "nobody")
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["a", "published again by the next sweep"],
        ["b", "decided in the meantime, so only removed from the set: expired"],
        ["nobody", "not in the dead-letter set"],
    ]
    assert commands.dead_ids() == ["c"]
    (waiting,) = commands.json("list")["pools"]
    assert (waiting["waiting"], waiting["due"], waiting["dead"]) == (1, 1, 1)


def test_all_are_replayed_after_a_yes_and_json_tells_each(commands: OrderCommands) -> None:
    refused = commands.ran("replay", SKU, "--all")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "segmented: replay --all needs --yes without a terminal\n"
    assert commands.ran("replay", SKU, "--all", "--yes").stdout == "no dead orders of mug\n"
    ids = [f"order-{number:04}" for number in range(1_100)]
    many = Pool(commands.store, "many")
    many.open(stock=5_000, segments=2)
    commands.store.execute(op.NotePool("many", submits=True))
    for page in (tuple(ids[:1_000]), tuple(ids[1_000:])):
        commands.store.execute(op.QueueOrders("many", tuple(Order(each, 1) for each in page), LONG_MS))
        commands.store.execute(op.TakeOrders("many", page, WORKER, LONG_MS, LONG_MS, LONG_MS, 5))
        commands.store.execute(op.PutOff("many", page, WORKER, LONG_MS, counts=True, begun_max=1, reason=REASON))
    found = commands.json("replay", "many", "--all", "--yes")
    assert sorted(one["order_id"] for one in found["orders"]) == ids
    assert {(one["answer"], one["state"]) for one in found["orders"]} == {("replayed", None)}
    (waiting,) = commands.json("list", "many")["pools"]
    assert (waiting["waiting"], waiting["due"], waiting["dead"]) == (1_100, 1_100, 0)


def test_a_dead_order_whose_record_is_gone_is_not_replayed_in_silence(commands: OrderCommands) -> None:
    commands.store.execute(op.ReserveMany(SKU, (Order("a", 2),), LONG_MS, publish_after_ms=LONG_MS))
    commands.store.execute(op.NotePool(SKU, submits=True))
    commands.give_up("a")
    commands.bury("b")
    commands.store.client.hdel(shard_keys(SKU).orders, "a")
    done = commands.ran("replay", SKU, "--all", "--yes")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        1,
        ["a\tnot in the dead-letter set", "b\tpublished again by the next sweep"],
    )
    assert commands.dead_ids() == []


def test_in_shards_an_order_is_replayed_in_each_set_that_has_it(commands: OrderCommands, shards: list[Shard]) -> None:
    commands.bury("a", shards[0])
    commands.bury("a", shards[2])
    commands.bury("b", shards[1])
    assert commands.rows("replay", "poster", "a") == [
        ["a (poster, shard 0)", "published again by the next sweep"],
        ["a (poster, shard 2)", "published again by the next sweep"],
    ]
    assert commands.rows("replay", "poster", "--all", "--yes") == [
        ["b (poster, shard 1)", "published again by the next sweep"]
    ]
    assert commands.dead_ids() == []


# --- messages ---


def test_a_message_is_shown_whole_and_cannot_steer_a_terminal(commands: OrderCommands) -> None:
    commands.keep(text=MESSAGE + "\nnext\x1b[2J")
    done = commands.ran("show-message", DIGESTS[0][:4])
    assert done.stdout == MESSAGE + "\n'next\\x1b[2J'\n"
    assert commands.json("show-message", DIGESTS[0])["text"] == MESSAGE + "\nnext\x1b[2J"
    assert "\x1b" not in commands.ran("dead").stdout


def test_messages_are_forgotten_all_or_none(commands: OrderCommands) -> None:
    for digest in DIGESTS:
        commands.keep(digest)
    done = commands.ran("forget-message", DIGESTS[0][:5], "77")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("segmented: no kept message of queue 'segmented' has a digest that begins with '77'\n")
    assert len(commands.json("dead")["messages"]) == 2
    done = commands.ran("forget-message", DIGESTS[0][:5], DIGESTS[0])
    assert (done.returncode, done.stdout) == (0, f"{DIGESTS[0]}: forgotten\n")
    assert [one["digest"] for one in commands.json("dead")["messages"]] == [DIGESTS[1]]


# --- bad input, real processes ---


def test_bad_input_is_one_sentence_and_changes_nothing(commands: OrderCommands) -> None:
    commands.bury("a")
    for digest in DIGESTS:
        commands.keep(digest)
    for words, said in (
        (["list", "nowhere"], "pool 'nowhere' is not open"),
        (["list", SKU, "a\nb"], "sku 'a\\nb' has characters that cannot be printed"),
        (["list", "poster\x1f0a"], "has characters that cannot be printed"),
        (["show", "nowhere", "a"], "pool 'nowhere' is not open"),
        (["show", SKU, "a\tb"], "order id 'a\\tb' has characters that cannot be printed"),
        (["show", SKU, ""], "order id '' must have 1 to 256 bytes"),
        (["dead", "nowhere"], "pool 'nowhere' is not open"),
        (["dead", "--queue", "a\x1b"], "queue 'a\\x1b' has characters that cannot be printed"),
        (["replay", "nowhere", "a"], "pool 'nowhere' is not open"),
        (["replay", SKU, "a", "b\x00"], "order id 'b\\x00' has characters that cannot be printed"),
        (["replay", SKU], "replay needs either ids of orders, or --all"),
        (["replay", SKU, "a", "--all", "--yes"], "replay needs either ids of orders, or --all"),
        (
            ["show-message", "3f"],
            "the digests of 2 messages of queue 'segmented' begin with '3f': give more",
        ),
        (
            ["forget-message", "3f"],
            "the digests of 2 messages of queue 'segmented' begin with '3f': give more",
        ),
        (["forget-message", ""], "no kept message of queue 'segmented' has a digest that begins with ''"),
        (["forget-message", DIGESTS[0], "--queue", "others"], "no kept message of queue 'others'"),
    ):
        done = commands.ran(*words)
        code = 1 if said.endswith("is not open") else 2  # as everywhere: it may be open the next time
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
        assert said in done.stderr
    assert (commands.dead_ids(), len(commands.json("dead")["messages"])) == (["a"], 2)


def test_the_command_runs_in_a_process_of_its_own_and_without_celery(commands: OrderCommands) -> None:
    commands.bury("a")
    done = command_line.ran_apart("orders", "replay", SKU, "a", url=commands.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\tpublished again by the next sweep\n", "")


def test_on_a_terminal_a_replay_of_all_asks(commands: OrderCommands) -> None:
    commands.bury("a")
    found, said = command_line.on_a_terminal("orders", "replay", SKU, "--all", url=commands.url, typed="n\n")
    assert found == 1
    assert "Publish 1 order of mug again?" in said
    assert commands.dead_ids() == ["a"]
