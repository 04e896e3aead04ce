"""`segmented pool archive` and `verify-archive` as their user sees them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented.errors import PoolArchived
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.command_line import ran

SKU: Final = "concert"


@pytest.fixture
def pool(valkey: ValkeyServer) -> Iterator[Pool]:
    """A closed pool of 100 units, of which 3 are sold."""
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=100, segments=4)
        pool.reserve("sold", quantity=3)
        pool.confirm("sold")
        pool.close()
        yield pool


def test_a_closed_pool_is_archived_once(pool: Pool, valkey: ValkeyServer, tmp_path: Path) -> None:
    file = tmp_path / "sold.jsonl.gz"
    words = ["pool", "archive", SKU, "--to", str(file), "--yes"]
    first, again = (ran(*words, url=valkey.url) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0)
    said = f"1 order in {len_of(first.stdout)} lines at {file}"
    assert first.stdout.splitlines()[0] == f"archived, and its keys are removed: {said}"
    assert again.stdout.splitlines() == [f"archived before: nothing is changed: {said}", first.stdout.splitlines()[1]]
    assert first.stderr.splitlines()[0] == "checking"
    assert [line.split(" ")[0] for line in first.stderr.splitlines()] == ["checking", "writing", "removing"]
    with pytest.raises(PoolArchived):
        pool.state()


def len_of(shown: str) -> str:
    return shown.splitlines()[0].split(" lines")[0].split(" ")[-1]


def test_an_archive_is_verified_without_a_server(pool: Pool, valkey: ValkeyServer, tmp_path: Path) -> None:
    file = tmp_path / "sold.jsonl"
    assert ran("pool", "archive", pool.sku, "--to", str(file), "--yes", url=valkey.url).returncode == 0
    good = ran("pool", "verify-archive", str(file), url=None)
    assert good.stdout.splitlines()[0].startswith("complete: concert in epoch 1, 1 order, 3 units sold, ")
    file.write_text(file.read_text(encoding="utf-8").replace('"c\\t3', '"c\\t4'), encoding="utf-8")
    bad = ran("pool", "verify-archive", str(file), url=None)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "is not a complete archive" in bad.stderr
    assert len(bad.stderr.splitlines()) == 1


BAD: dict[str, tuple[list[str], str]] = {
    "no place": ([], "--to"),
    "no folder": (["--to", "/nowhere/sold.jsonl"], "there is no folder /nowhere"),
    "no name": (["--to", " "], "names no file"),
}


def test_bad_input_is_one_sentence_and_changes_nothing(pool: Pool, valkey: ValkeyServer) -> None:
    for words, why in BAD.values():
        done = ran("pool", "archive", pool.sku, *words, "--yes", url=valkey.url)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr.splitlines()[-1]
        assert pool.close().replay


def test_other_commands_say_where_the_archive_is(pool: Pool, valkey: ValkeyServer, tmp_path: Path) -> None:
    file = tmp_path / "sold.jsonl"
    ran("pool", "archive", pool.sku, "--to", str(file), "--yes", url=valkey.url)
    for words in (["show", SKU], ["audit", SKU], ["restock", SKU, "1", "--id", "x"], ["close", SKU, "--yes"]):
        done = ran("pool", *words, url=valkey.url)
        assert f"pool 'concert' was archived to {file}: open it again in epoch 2 or a later one" in done.stderr
        assert done.returncode != 0
