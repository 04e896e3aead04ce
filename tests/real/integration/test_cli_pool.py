"""`segmented pool` as its user sees it: piped, on a terminal, live, and while the server is away."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented.errors import PoolMissing
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.command_line import on_a_terminal, ran, ran_apart

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


def test_an_audit_of_a_sound_pool_ends_with_zero(pool: Pool, valkey: ValkeyServer) -> None:
    done = ran("pool", "audit", SKU, url=valkey.url)
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(done.stdout)
    assert (rows["audit"], rows["oversold"]) == (f"clean, as of change {pool.state().sequence}", "0")
    found = json.loads(ran("pool", "audit", SKU, "--json", "-", url=valkey.url).stdout)
    assert (found["is_clean"], found["drift"], found["by_kind"]) == (True, [], {})


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
