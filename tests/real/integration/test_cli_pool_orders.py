"""`segmented pool orders` over a real server: who got what."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmented.servers.valkey import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.command_line import ran

SKU = "concert"


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
