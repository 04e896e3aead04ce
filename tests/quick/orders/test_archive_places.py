"""Where an archive goes: a file, whole or not at all; and what its check finds."""

import fcntl
import gzip
import hashlib
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segmented.errors import InvalidInput, PoolArchived
from segmented.models import Order, Settled
from segmented.orders import Gate, reopen_gated
from segmented.orders.sale import take_order
from segmented.stock import Pool, delete
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import FileArchive, archive, lines_of
from segmented.stores.redis import RedisStore

SKU = "concert"


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """A closed pool of 40 units, 25 of them sold one by one."""
    pool = Pool(store, SKU)
    pool.open(stock=40, segments=4)
    sell(pool, 25)
    pool.close()
    return pool


def sell(pool: Pool, count: int) -> None:
    for number in range(count):
        pool.reserve(f"order {number}")
        pool.confirm(f"order {number}")


def is_whole(pool: Pool) -> bool:
    """Return whether the pool is there, closed, and not being archived."""
    return pool.close().replay and pool.audit().is_clean and pool.state().order_count == 25


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# --- files ---


def test_a_place_that_can_be_no_file_is_refused_and_the_pool_stays_whole(pool: Pool, tmp_path: Path) -> None:
    wrong = {
        tmp_path / "missing" / "sold.jsonl": "there is no folder",
        tmp_path: "is a folder, not a file",
        Path("/dev/null"): "is a device or a pipe: name a file",
    }
    for place, why in wrong.items():
        with pytest.raises(InvalidInput, match=why):
            archive(pool, place)
        assert is_whole(pool)


def test_a_disk_without_room_is_one_sentence_and_the_pool_stays_whole(pool: Pool, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(InvalidInput, match=r"the archive .*sold.jsonl cannot be written: "):
            archive(pool, tmp_path / "sold.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert is_whole(pool)
    assert names_in(tmp_path) == []
    assert archive(pool, tmp_path / "sold.jsonl").orders == 25


def test_a_file_of_something_else_is_not_overwritten(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "sold.jsonl").write_text("precious\n", encoding="utf-8")
    with pytest.raises(
        InvalidInput,
        match="line 1 is not a JSON object; it was there before, so it is not overwritten: name ",
    ):
        archive(pool, tmp_path / "sold.jsonl")
    assert (tmp_path / "sold.jsonl").read_text(encoding="utf-8") == "precious\n"
    assert is_whole(pool)


def test_the_archive_of_another_pool_is_not_overwritten(pool: Pool, store: RedisStore, tmp_path: Path) -> None:
    other = Pool(store, "other")
    other.open(stock=1, segments=1)
    other.close()
    archive(other, tmp_path / "sold.jsonl")
    with pytest.raises(InvalidInput, match="has the archive of another pool, or of another state: name another place"):
        archive(pool, tmp_path / "sold.jsonl")
    assert is_whole(pool)


def test_an_archive_that_was_finished_before_the_file_was_locked_stays_whole(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process renames the file beside it between this one's open and its lock."""
    file, lock = tmp_path / "sold.jsonl", fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        archive(pool, file)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InvalidInput, match="another process has just written the archive"):
        archive(pool, file)
    assert check_archive(lines_of(file), "here").confirmed == 25


def test_an_archive_that_another_process_writes_is_left_to_it(pool: Pool, tmp_path: Path) -> None:
    first = FileArchive(tmp_path / "sold.jsonl")
    with first.writing() as write:
        with pytest.raises(InvalidInput, match="another process is writing the archive"):
            archive(pool, tmp_path / "sold.jsonl")
        write("end")
    assert (tmp_path / "sold.jsonl").read_text(encoding="utf-8") == "end\n"
    assert is_whole(pool)


def test_an_interruption_while_it_is_written_leaves_a_whole_pool_and_no_file(pool: Pool, tmp_path: Path) -> None:
    def interrupt(step: str, done: int, _total: int) -> None:
        if step == "writing" and done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive(pool, tmp_path / "sold.jsonl", on_progress=interrupt)
    assert is_whole(pool)
    assert names_in(tmp_path) == []


def test_the_removal_is_finished_with_an_archive_that_was_moved(pool: Pool, tmp_path: Path) -> None:
    def interrupt(step: str, _done: int, _total: int) -> None:
        if step == "removing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive(pool, tmp_path / "sold.jsonl", on_progress=interrupt)
    (tmp_path / "sold.jsonl").rename(tmp_path / "moved.jsonl")
    with pytest.raises(InvalidInput, match=f"to {tmp_path}/sold.jsonl, and its complete archive is not at"):
        archive(pool, tmp_path / "sold.jsonl")
    assert archive(pool, tmp_path / "moved.jsonl").orders == 25


# --- with an order database ---


def test_a_deleted_pool_gets_no_rows_before_it_is_opened_in_a_later_epoch(
    store: RedisStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate, plain = open_gate(order_database), Pool(store, SKU)
    plain.open(stock=10, segments=2)
    delete(plain, unfinished=True)
    gated = Pool(store, SKU, gate=gate)
    with pytest.raises(PoolArchived, match="open it again in epoch 2 or a later one, with epoch=2 or --epoch, or sell"):
        gated.open(stock=10, segments=2)
    assert gate.totals(SKU).quota == 0
    assert gated.open(stock=10, segments=2, epoch=2).state.available == 10


def test_the_order_database_of_an_archived_pool_keeps_its_rows(
    store: RedisStore, order_database: str, open_gate: Callable[..., Gate], tmp_path: Path
) -> None:
    gate, pool = open_gate(order_database), Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    for number in range(4):
        take_order(pool, gate, Order(f"order {number}", 1), timeout=5.0)
    pool.close()
    answer = archive(pool, tmp_path / "sold.jsonl")
    assert (answer.gated, answer.orders) == (True, 4)
    assert (gate.totals(SKU).sold, gate.totals(SKU).quota) == (4, 10)
    with pytest.raises(PoolArchived, match="was archived to"):
        take_order(pool, gate, Order("late", 1), timeout=5.0)
    with pytest.raises(PoolArchived, match="open it again in epoch 2 or a later one"):
        Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    assert gate.totals(SKU).sold == 4
    assert reopen_gated(pool, gate, segments=2, epoch=2).state.available == 6
    repeated = take_order(pool, gate, Order("order 1", 1), timeout=5.0)
    assert isinstance(repeated, Settled)
    assert (repeated.state, repeated.replay, gate.totals(SKU).sold) == ("confirmed", True, 4)


# --- the check ---


def rewritten(lines: list[str], change: Callable[[dict[str, Any]], None], *, kind: str, place: int = 0) -> list[str]:
    """Change one record, and the digest at the end, as somebody would who knows the format."""
    found = [json.loads(line) for line in lines[:-1]]
    change([one for one in found if one["record"] == kind][place])
    return ended([json.dumps(one) for one in found], json.loads(lines[-1])["orders"])


def ended(lines: list[str], orders: int) -> list[str]:
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    return [*lines, json.dumps({"record": "end", "lines": len(lines), "orders": orders, "sha256": digest})]


def set_value(value: object) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.update(value=value)


def without(lines: list[str], kind: str, orders: int) -> list[str]:
    found = [json.loads(line) for line in lines[:-1]]
    del found[next(index for index, one in enumerate(found) if one["record"] == kind)]
    return ended([json.dumps(one) for one in found], orders)


DAMAGE: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut": (lambda lines: lines[:-1], "its end is missing"),
    "empty": (lambda _: [], "its end is missing"),
    "a line changed": (lambda lines: [lines[0], lines[1].replace("1", "2"), *lines[2:]], "lines of another content"),
    "a line lost": (lambda lines: [*lines[:9], *lines[10:]], "lines of another content"),
    "a line more": (lambda lines: [*lines, "{}"], "it has lines after its end"),
    "no object": (lambda lines: ["[]", *lines], "line 1 is not a JSON object"),
    "another format": (
        lambda lines: rewritten(lines, lambda head: head.update(format=2), kind="archive"),
        "it has format 2, and this release reads format 1",
    ),
    "no archive": (lambda lines: lines[1:], "its first line does not say that it is one"),
    "an order lost": (lambda lines: without(lines, "orders", 24), "it has 24 orders, and the pool had 25"),
    "an order of more units": (
        lambda lines: rewritten(lines, set_value("c\t2\t0\t3"), kind="orders"),
        "the orders sold 26 units, the pool others",
    ),
    "a unit more in a segment": (
        lambda lines: rewritten(lines, set_value("99"), kind="stock"),
        "units are free in segments, 15 in all",
    ),
    "an entry lost": (lambda lines: without(lines, "ledger", 25), "the ledger has no entry 1"),
    "an entry changed": (
        lambda lines: rewritten(lines, lambda one: one["value"].update(lines="order 0\t9"), kind="ledger", place=1),
        "the digest of entry 1-2 of the ledger does not follow from the one before",
    ),
    "a number lost": (
        lambda lines: rewritten(lines, lambda one: one.update(name="other"), kind="meta", place=6),
        "is missing or cannot be read",
    ),
}


def test_the_check_names_what_is_wrong(pool: Pool, tmp_path: Path) -> None:
    archive(pool, tmp_path / "sold.jsonl")
    lines = list(lines_of(tmp_path / "sold.jsonl"))
    assert check_archive(lines, "here").confirmed == 25
    for change, why in DAMAGE.values():
        with pytest.raises(InvalidInput, match=r"^here is not a complete archive: ") as error:
            check_archive(change(lines), "here")
        assert why in str(error.value)


def test_a_compressed_archive_that_was_cut_cannot_be_read(pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "sold.jsonl.gz"
    archive(pool, file)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="cannot be read"):
        check_archive(lines_of(file), "here")
    file.write_bytes(gzip.compress(b"\xff\n"))
    with pytest.raises(InvalidInput, match="cannot be read"):
        check_archive(lines_of(file), "here")


def test_a_thawed_pool_is_archived_with_the_units_it_lost(store: RedisStore, tmp_path: Path) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=100, segments=4)
    sell(pool, 5)
    store.client.hset(f"seg:{{{SKU}:0}}:meta", "frozen", "1-20")
    pool.thaw(sold=8)
    pool.close()
    assert archive(pool, tmp_path / "sold.jsonl").orders == 5
    assert check_archive(lines_of(tmp_path / "sold.jsonl"), "here").confirmed == 8


@pytest.mark.parametrize("name", ["sold.jsonl", "sold.jsonl.gz"])
def test_a_file_appears_once_it_is_complete(pool: Pool, tmp_path: Path, name: str) -> None:
    there: set[str] = set()
    archive(pool, tmp_path / name, on_progress=lambda *_: there.update(names_in(tmp_path)))
    assert names_in(tmp_path) == [name]
    assert f".{name}.partial" in there
    assert check_archive(lines_of(tmp_path / name), "here").orders == 25


def test_a_trimmed_ledger_is_checked_from_where_it_begins(store: RedisStore, tmp_path: Path) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=100, segments=4)
    sell(pool, 40)
    pool.trim_ledger(keep=10)
    sell(pool, 50)
    pool.trim_ledger(keep=10)
    pool.close()
    assert archive(pool, tmp_path / "sold.jsonl").orders == 50
    assert check_archive(lines_of(tmp_path / "sold.jsonl"), "here").confirmed == 50
