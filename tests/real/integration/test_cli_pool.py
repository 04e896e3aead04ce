"""`segmented pool` as its user sees it: piped, on a terminal, live, and while the server is away."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from segmented.errors import PoolMissing
from segmented.keys import shard_keys
from segmented.orders import Gate, rebuild
from segmented.protocol import FreezePool
from segmented.protocol.wire import load_script
from segmented.servers import ValkeyServer
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore
from tests.real.integration.test_sell_refuses import TEN_IN_TWO, one_order
from tests.support.command_line import on_a_terminal, ran, ran_apart, started
from tests.support.proxy import RedisProxy
from tests.support.workers.selling import sell

SKU: Final = "concert"
SECONDS: Final = 120.0


@pytest.fixture
def pool(valkey: ValkeyServer) -> Iterator[Pool]:
    """A pool of 100 units in 4 segments, of which 3 are sold and 2 reserved."""
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=100, segments=4)
        pool.reserve("sold", quantity=3)
        pool.confirm("sold")
        pool.reserve("held", quantity=2)
        yield pool


def rows_of(shown: str) -> dict[str, str]:
    return dict(line.split("\t") for line in shown.splitlines() if line.count("\t") == 1)


# --- opening ---


def test_a_pool_is_opened_once(valkey: ValkeyServer) -> None:
    words = ["pool", "open", SKU, "--stock", "100", "--segments", "4", "--limit-per-customer", "2", "--epoch", "7"]
    first, again = (ran(*words, url=valkey.url) for _ in range(2))
    assert (first.returncode, first.stderr, again.returncode) == (0, "", 0)
    assert first.stdout.splitlines()[0] == "opened"
    assert again.stdout.splitlines()[0] == "open already: nothing is changed"
    rows = rows_of(first.stdout)
    assert (rows["available"], rows["segments"], rows["limit per customer"], rows["epoch"]) == ("100", "4", "2", "7")
    with RedisStore.from_url(valkey.url) as store:
        state = Pool(store, SKU).state()
    assert (state.opened, state.segment_count, state.limit_per_customer, state.epoch) == (100, 4, 2, 7)


def test_a_pool_that_is_open_with_other_numbers_is_left_alone_and_said(pool: Pool, valkey: ValkeyServer) -> None:
    before = pool.state()
    done = ran("pool", "open", SKU, "--stock", "200", "--segments", "4", url=valkey.url)
    assert (done.returncode, done.stderr) == (
        1,
        "segmented: open already, with stock 100 instead of 200: nothing is changed\n",
    )
    found = ran("pool", "open", SKU, "--stock", "100", "--segments", "4", "--epoch", "2", "--json", "-", url=valkey.url)
    answer = json.loads(found.stdout)
    assert (found.returncode, answer["is_new"], answer["is_as_asked"], answer["epoch"]) == (1, False, False, 1)
    assert pool.state() == before


# --- looking ---


def test_a_pool_is_shown_in_plain_lines(pool: Pool, valkey: ValkeyServer) -> None:
    done = ran_apart("pool", "show", SKU, url=valkey.url)
    totals, segments = done.stdout.split("\n\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows_of(totals) == {
        "sku": "concert",
        "state": "open",
        "stocked": "100",
        "available": "95",
        "reserved": "2",
        "confirmed": "3",
        "orders": "2",
        "segments": "4",
        "limit per customer": "none",
        "decided by": "the pool",
        "profile": "memory",
        "epoch": "1",
        "last change": str(pool.state().sequence),
    }
    assert tuple(int(units) for units in rows_of(segments).values()) == pool.state().stock


def test_many_segments_are_folded_but_json_has_each(pool: Pool, valkey: ValkeyServer, tmp_path: Path) -> None:
    pool.resize(30)
    shown = ran("pool", "show", SKU, url=valkey.url).stdout.split("\n\n")[1].splitlines()
    assert [line.split("\t")[0] for line in shown[:2]] == ["0-1", "2-3"]
    assert sum(int(line.split("\t")[1]) for line in shown) == 95
    assert ran("pool", "show", SKU, "--json", str(tmp_path / "pool.json"), url=valkey.url).returncode == 0
    found = json.loads((tmp_path / "pool.json").read_text())
    assert tuple(found["stock"]) == pool.state().stock
    assert (found["available"], found["stocked"], found["is_sold_out"]) == (95, 100, False)


def test_a_pool_that_is_sold_out_or_closed_says_so(pool: Pool, valkey: ValkeyServer) -> None:
    pool.reserve("rest", quantity=95)
    shown = rows_of(ran("pool", "show", SKU, url=valkey.url).stdout)
    assert (shown["state"], shown["available"]) == ("sold out, 97 reserved may come back", "0")
    pool.close()
    assert rows_of(ran("pool", "show", SKU, url=valkey.url).stdout)["state"] == "closed"


# --- changing ---


def test_a_change_whose_answer_cannot_be_written_is_told_with_the_error(pool: Pool, valkey: ValkeyServer) -> None:
    before = pool.state().available
    done = ran("pool", "restock", SKU, "50", "--id", "lorry 9", "--json", "/dev/full", url=valkey.url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "/dev/full cannot be written" in done.stderr
    assert done.stderr.endswith(f"; restocked: 50 units, {before + 50} are free now\n")
    assert pool.state().available == before + 50


def test_a_restock_is_done_once_for_each_id(pool: Pool, valkey: ValkeyServer) -> None:
    first, again = (ran("pool", "restock", SKU, "50", "--id", "lorry 7", url=valkey.url) for _ in range(2))
    assert (first.returncode, first.stdout) == (0, "restocked: 50 units, 145 are free now\n")
    assert (again.returncode, again.stdout) == (
        0,
        "restocked before under this id: 50 units, nothing is changed now\n",
    )
    other = ran("pool", "restock", SKU, "51", "--id", "lorry 7", url=valkey.url)
    assert (other.returncode, other.stderr.count("\n")) == (1, 1)
    assert pool.state().available == 145


def test_a_withdrawal_is_all_or_none_and_once(pool: Pool, valkey: ValkeyServer) -> None:
    few = ran("pool", "withdraw", SKU, "96", "--id", "back", url=valkey.url)
    assert (few.returncode, few.stderr) == (1, "segmented: only 95 units are free, not 96: nothing is changed\n")
    words = ["pool", "withdraw", SKU, "95", "--id", "back", "--json", "-"]
    first, again = (json.loads(ran(*words, url=valkey.url).stdout) for _ in range(2))
    assert (first["answer"], first["units"], first["available"], first["replay"]) == ("withdrawn", 95, 0, False)
    assert (again["answer"], again["units"], again["replay"]) == ("withdrawn", 95, True)
    assert pool.state().withdrawn == 95


def test_a_closed_pool_takes_no_more_units(pool: Pool, valkey: ValkeyServer) -> None:
    first, again = (ran("pool", "close", SKU, "--yes", url=valkey.url) for _ in range(2))
    assert (first.returncode, first.stdout) == (0, "closed\n")
    assert (again.returncode, again.stdout) == (0, "closed before: nothing is changed\n")
    refused = ran("pool", "restock", SKU, "5", "--id", "late", url=valkey.url)
    assert (refused.returncode, refused.stderr) == (1, "segmented: the pool is closed: nothing is changed\n")
    found = json.loads(ran("pool", "restock", SKU, "5", "--id", "late", "--json", "-", url=valkey.url).stdout)
    assert found == {"answer": "closed", "change_id": "late", "units": 5}
    assert pool.state().restocked == 0


def test_in_a_pipe_a_close_without_yes_is_refused(pool: Pool, valkey: ValkeyServer) -> None:
    done = ran("pool", "close", SKU, url=valkey.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "segmented: close needs --yes without a terminal\n"
    assert not pool.state().is_closed


@pytest.mark.parametrize(("typed", "code", "is_closed"), [("y\n", 0, True), ("\n", 1, False)])
def test_on_a_terminal_a_close_shows_the_pool_and_asks(
    pool: Pool, valkey: ValkeyServer, typed: str, code: int, *, is_closed: bool
) -> None:
    ended, shown = on_a_terminal("pool", "close", SKU, url=valkey.url, typed=typed)
    assert ended == code
    assert "Close concert for good, with 95 units unsold? [y/N]" in shown
    assert pool.state().is_closed == is_closed


# --- the books ---


def lose_an_order(pool: Pool) -> None:
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hdel(shard_keys(SKU).orders, "sold")


def test_an_audit_names_each_drift_and_ends_with_one(pool: Pool, valkey: ValkeyServer) -> None:
    lose_an_order(pool)
    done = ran("pool", "audit", SKU, url=valkey.url)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line for line in done.stdout.splitlines() if "order sold" in line] == done.stdout.splitlines()[:1]
    assert rows_of(done.stdout)["audit"].startswith("not clean")
    found = ran("pool", "audit", SKU, "--json", "-", url=valkey.url)
    assert (found.returncode, json.loads(found.stdout)["drift"][0]["order_id"]) == (1, "sold")


def test_a_repair_needs_a_yes_and_then_the_audit_is_clean(pool: Pool, valkey: ValkeyServer) -> None:
    lose_an_order(pool)
    refused = ran("pool", "repair", SKU, url=valkey.url)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "segmented: repair needs --yes without a terminal\n"
    assert not pool.audit().is_clean
    done = ran("pool", "repair", SKU, "--yes", url=valkey.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert any(line.startswith("mended\t") and "\tsold\t" in line for line in done.stdout.splitlines())
    assert pool.audit().is_clean
    again = json.loads(ran("pool", "repair", SKU, "--yes", "--json", "-", url=valkey.url).stdout)
    assert (again["done_count"], again["repairs"], again["after"]["is_clean"]) == (0, [], True)


@pytest.mark.usefixtures("pool")
def test_the_ledger_is_exported_as_lines_and_as_columns(valkey: ValkeyServer, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in ran("pool", "export", SKU, url=valkey.url).stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["opened", "reserved", "confirmed", "reserved"]
    assert [line["order_id"] for line in lines[1:]] == ["sold", "sold", "held"]
    last = str(lines[1]["sequence"])
    words = ["pool", "export", SKU, "--format", "csv", "--to", str(tmp_path / "ledger.csv"), "--after", last]
    done = ran(*words, url=valkey.url)
    assert (done.returncode, done.stdout) == (0, "2 entries written\n")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "ledger.csv").read_text())))
    assert [(row["kind"], row["order_id"], row["quantity"]) for row in rows] == [
        ("confirmed", "sold", "3"),
        ("reserved", "held", "2"),
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "ledger.csv"]


def test_an_export_that_fails_leaves_no_file(valkey: ValkeyServer, tmp_path: Path) -> None:
    done = ran("pool", "export", "nowhere", "--to", str(tmp_path / "ledger"), url=valkey.url)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    away = ran("pool", "export", SKU, "--to", str(tmp_path / "no" / "ledger"), url=valkey.url)
    assert (away.returncode, away.stderr.count("\n")) == (2, 1)
    assert away.stderr.endswith(f"there is no folder {tmp_path / 'no'}\n")


# --- bad input ---


def test_bad_input_is_one_sentence_and_exit_code_two_and_changes_nothing(pool: Pool, valkey: ValkeyServer) -> None:
    for words, sentence in (
        (["open", SKU, "--stock", "0", "--segments", "4"], "stock 0 of 'concert' must be between 1 and "),
        (
            ["open", SKU, "--stock", "10", "--segments", "5000"],
            "segment count 5000 of 'concert' must be between 1 and ",
        ),
        (["open", SKU, "--stock", "10"], "Missing option '--segments': see segmented pool open --help"),
        (["open", "x" * 129, "--stock", "10", "--segments", "4"], "sku "),
        (["restock", SKU, "5"], "Missing option '--id': see segmented pool restock --help"),
        (["restock", SKU, "0", "--id", "a"], "units to restock 0 of 'concert' must be between 1 and "),
        (["withdraw", SKU, "many", "--id", "a"], "Invalid value for 'UNITS': "),
        (["withdraw", SKU, "5", "--id", ""], "withdrawal id '' must have 1 to 256 bytes of UTF-8"),
        (["resize", SKU, "0"], "segment count 0 of 'concert' must be between 1 and "),
        (["show", SKU, "--url", "http://localhost"], "'http://localhost' is not a Redis URL: "),
    ):
        before = pool.state()
        done = ran("pool", *words, url=valkey.url)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"segmented: {sentence}")
        assert done.stderr.count("\n") == 1
        assert pool.state() == before


def test_a_pool_that_is_not_open_is_one_sentence(valkey: ValkeyServer) -> None:
    for words in ("show", "audit", "resize 3", "close --yes", "export", "orders"):
        name, *options = words.split()
        done = ran("pool", name, SKU, *options, url=valkey.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"segmented: {PoolMissing('concert')}\n"


# --- what somebody else wrote ---


def test_numbers_that_cannot_be_read_are_named_in_a_sentence(pool: Pool, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        store.client.hset(shard_keys(SKU).meta, "available", "abc")
        store.client.hset(shard_keys(SKU).stock, "2", "1.5")
    assert pool.state().unreadable == ("available", "segment 2")
    sentence = f"not whole numbers, so counted as 0: available, segment 2; see segmented pool audit {SKU}\n"
    done = ran("pool", "show", SKU, url=valkey.url)
    assert (done.returncode, done.stderr) == (1, sentence)
    assert rows_of(done.stdout)["confirmed"] == "3"
    found = ran("pool", "show", SKU, "--json", "-", url=valkey.url)
    assert (found.returncode, json.loads(found.stdout)["unreadable"]) == (1, ["available", "segment 2"])
    for words in (["audit", SKU], ["repair", SKU, "--yes"]):
        done = ran("pool", *words, url=valkey.url)
        assert (done.returncode, done.stderr) == (1, "")
        assert "available is not a whole number, the ledger says 95" in done.stdout


# `segmented pool list`: every pool that was opened, in shards or not.


def test_every_pool_that_was_opened_is_listed_until_it_is_archived(valkey: ValkeyServer, tmp_path: object) -> None:
    assert ran("pool", "list", url=valkey.url).stderr == "segmented: no pool was opened on this server\n"
    with RedisStore.from_url(valkey.url) as store:
        poster = Pool(store, "poster")
        poster.open(stock=10, segments=2)
        poster.reserve("a", quantity=3)
        ShardedPool(store, "plate").open(stock=20, segments=4, shards=2)
        assert ran("pool", "list", url=valkey.url).stdout.splitlines() == [
            "plate\t20\t0\t0\topen",
            "poster\t7\t3\t0\topen",
        ]
        listed = json.loads(ran("pool", "list", "--json", "-", url=valkey.url).stdout)["pools"]
        assert [(one["sku"], one["state"]["available"]) for one in listed] == [("plate", 20), ("poster", 7)]
        poster.cancel("a")
        poster.close()
        file = f"{tmp_path}/poster.jsonl"
        assert ran("pool", "archive", "poster", "--to", file, "--yes", url=valkey.url).returncode == 0
    assert ran("pool", "list", url=valkey.url).stdout.splitlines() == ["plate\t20\t0\t0\topen"]


# `segmented pool open --profile`: what it opens, what it shows, and what it refuses.


def test_a_pool_is_opened_with_a_profile_and_shown_with_it(
    start_valkey: Callable[..., ValkeyServer], data_folder: Path
) -> None:
    url = start_valkey(data_folder, config={"appendfsync": "always"}).url
    words = ["pool", "open", SKU, "--stock", "100", "--segments", "4"]
    done = ran(*words, "--profile", "fsync/500ms", url=url)
    assert (done.returncode, done.stderr, rows_of(done.stdout)["profile"]) == (0, "", "fsync/500ms")
    assert ran(*words, url=url).returncode == 0  # an open pool keeps its profile
    assert ran(*words, "--profile", "fsync", url=url).returncode == 1
    assert json.loads(ran("pool", "show", SKU, "--json", "-", url=url).stdout)["profile"] == "fsync/500ms"


def test_a_profile_that_the_server_or_nobody_knows_is_refused_and_nothing_is_opened(valkey: ValkeyServer) -> None:
    words = ["pool", "open", SKU, "--stock", "100", "--segments", "4", "--profile"]
    replicated = ran(*words, "replicated:1", url=valkey.url)
    assert replicated.returncode == 2
    assert replicated.stderr == (
        "segmented: pool 'concert' cannot be opened with profile replicated:1: the server has 0 connected replicas of "
        "the 1 wanted; connect more, or ask for fewer\n"
    )
    unknown = ran(*words, "disk", url=valkey.url)
    assert (unknown.returncode, unknown.stderr.startswith("segmented: profile 'disk' is not known; give ")) == (2, True)
    assert ran("pool", "show", SKU, url=valkey.url).returncode != 0


# `segmented pool orders` over a real server: each order with its units.


@pytest.mark.usefixtures("pool")
def test_who_got_what_is_exported_as_lines_of_json_and_as_csv(valkey: ValkeyServer, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in ran("pool", "orders", SKU, url=valkey.url).stdout.splitlines()]
    assert {one["order_id"]: (one["state"], one["quantity"]) for one in lines} == {
        "sold": ("confirmed", 3),
        "held": ("reserved", 2),
    }
    assert all("holder_id" not in one for one in lines)  # it would prove ownership
    file = tmp_path / "sold.csv"
    words = ["pool", "orders", SKU, "--state", "confirmed", "--format", "csv", "--to", str(file)]
    assert ran(*words, url=valkey.url).stdout == "1 order written\n"
    (row,) = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    assert (row["order_id"], row["quantity"], row["customer_id"]) == ("sold", "3", "")


# A pool's queue and step by command: opened, shown, changed, kept by a rebuild, and respected by `segmented sell`.


STEP: Final = "shop.steps:charge"
NAMES: Final = ("--queue", "concerts", "--step", STEP)
OPEN: Final = ("open", SKU, "--stock", "10", "--segments", "4")


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    return sqlite_url


def names_of(valkey: ValkeyServer) -> tuple[str | None, str | None]:
    with RedisStore.from_url(valkey.url) as store:
        state = find_pool(store, SKU).state()
    return state.queue, state.step


@pytest.mark.parametrize("shards", [(), ("--shards", "2")], ids=["in one slot", "in shards"])
def test_a_pool_names_its_workers_and_other_ones_later(valkey: ValkeyServer, shards: tuple[str, ...]) -> None:
    first = ran("pool", *OPEN, *shards, *NAMES, url=valkey.url)
    rows = rows_of(first.stdout)
    assert (rows["queue of its workers"], rows["step of its workers"]) == ("concerts", STEP)
    assert names_of(valkey) == ("concerts", STEP)
    found: dict[str, Any] = json.loads(ran("pool", "show", SKU, "--json", "-", url=valkey.url).stdout)
    assert (found["queue"], found["step"]) == ("concerts", STEP)
    words = ("pool", "assign", SKU, "--queue", "tickets", "--any-step")
    assert [ran(*words, url=valkey.url).stdout for _ in range(2)] == [
        "queue tickets, step any now\n",
        "queue tickets, step any before: nothing is changed\n",
    ]
    assert names_of(valkey) == ("tickets", None)


def test_a_pool_that_is_open_with_other_names_is_left_alone_and_said(valkey: ValkeyServer) -> None:
    ran("pool", *OPEN, *NAMES, url=valkey.url)
    done = ran("pool", *OPEN, "--queue", "mugs", url=valkey.url)
    assert (done.returncode, done.stderr) == (
        1,
        "segmented: open already, with queue concerts instead of mugs: nothing is changed\n",
    )
    assert ran("pool", *OPEN, url=valkey.url).returncode == 0
    assert names_of(valkey) == ("concerts", STEP)


def test_an_assignment_that_is_not_whole_is_refused(valkey: ValkeyServer) -> None:
    for words, sentence in (
        (("--queue", "q"), "give either --step NAME or --any-step: the command sets both queue and step of 'concert'"),
        (
            ("--step", STEP),
            "give either --queue NAME or --any-queue: the command sets both queue and step of 'concert'",
        ),
        (
            ("--queue", "q", "--any-queue", "--any-step"),
            "give either --queue NAME or --any-queue: the command sets both queue and step of 'concert'",
        ),
        (
            ("--queue", "q", "--step", "charge"),
            "step 'charge' should be module:function, as SEGMENTED_STEP names it",
        ),
    ):
        ran("pool", *OPEN, *NAMES, url=valkey.url)
        done = ran("pool", "assign", SKU, *words, url=valkey.url)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"segmented: {sentence}\n")
        assert names_of(valkey) == ("concerts", STEP)


def test_a_gated_pool_keeps_its_names_through_a_rebuild(valkey: ValkeyServer, gate: Gate, order_database: str) -> None:
    database = ("--database", order_database)
    assert ran("pool", *OPEN, "--gated", *database, *NAMES, url=valkey.url).returncode == 0
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        store.execute(FreezePool(SKU, 1))
        rebuild(pool, gate)
        assert names_of(valkey) == ("concerts", STEP)
        pool.assign(queue="tickets", step=STEP)
        store.client.flushall()
    again = ran("pool", "reopen", SKU, *database, "--segments", "4", "--queue", "tickets", url=valkey.url)
    assert again.stdout == "reopened in epoch 3: 10 free\n"
    assert names_of(valkey) == ("tickets", STEP)  # which the sale's row keeps


def test_a_sale_of_a_file_refuses_a_pool_that_names_other_workers(
    tmp_path: Path, valkey: ValkeyServer, gate: Gate, order_database: str
) -> None:
    with RedisStore.from_url(valkey.url) as store:
        Pool(store, "mug", gate=gate).open(stock=10, segments=2, step=STEP)
        sold = sell(
            tmp_path,
            one_order(tmp_path),
            *TEN_IN_TWO,
            *("--sku", "mug", "--url", valkey.url, "--database", order_database),
        )
        assert sold.exit_code == 2
        assert f"pool 'mug' names step {STEP!r} for its orders, so this sale cannot sell them" in sold.errors
        assert Pool(store, "mug").state().order_count == 0


# `segmented pool` of a gated pool whose process is killed between the two sides: the same command finishes it.


MUG: Final = "mug"
CHANGES: Final = {
    "restock": ("restock", MUG, "5", "--id", "change"),
    "withdraw": ("withdraw", MUG, "5", "--id", "change"),
    "resize": ("resize", MUG, "4"),
}
AFTER: Final = {"restock": (15, 2), "withdraw": (5, 2), "resize": (10, 4)}


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
    gate, pool = open_gate(postgres_database), Pool(store, MUG)
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
    state, totals = pool.state(), gate.totals(MUG)
    assert ((state.stocked, state.segment_count) == AFTER[name]) == is_request_passed
    assert (totals.quota, len(totals.segments)) == {"restock": (15, 2), "withdraw": (10, 2), "resize": (10, 4)}[name]
    assert len(gate.unfinished_changes(MUG)) == (name != "resize")
    done = ran(*words, url=valkey.url)
    assert (done.returncode, done.stderr, "before" in done.stdout) == (0, "", is_request_passed)
    assert (pool.state().stocked, pool.state().segment_count) == AFTER[name]
    totals = gate.totals(MUG)
    assert (totals.quota, gate.unfinished_changes(MUG), pool.audit().is_clean) == (pool.state().stocked, (), True)
