"""One order database has a sku as one pool, or in shards: never both, whichever server it is opened on."""

from __future__ import annotations

import pytest

from segmented import Gate, InvalidInput, MemoryStore, Pool
from segmented.models import Shard
from segmented.orders import connect
from segmented.stock import ShardedPool


@pytest.fixture
def gate(sqlite_url: str) -> Gate:
    made = Gate(connect(sqlite_url))
    made.create()
    return made


def one_pool(gate: Gate, sku: str = "mug") -> None:
    Pool(MemoryStore(), sku, gate=gate).open(stock=10, segments=2)


def in_shards(gate: Gate, sku: str = "mug") -> None:
    ShardedPool(MemoryStore(), sku, gate=gate).open(stock=10, segments=4, shards=2)


def test_a_sku_that_was_sold_as_one_pool_is_not_opened_in_shards(gate: Gate) -> None:
    one_pool(gate)
    with pytest.raises(
        InvalidInput, match=r"^the order database knows 'mug' as one pool, so it is not opened in another"
    ):
        in_shards(gate)
    assert gate.names_of("mug") == ["mug"]


def test_a_sku_that_was_sold_in_shards_is_not_opened_as_one_pool(gate: Gate) -> None:
    in_shards(gate)
    names = gate.names_of("mug")
    assert len(names) == 2
    with pytest.raises(InvalidInput, match=r"^the order database knows 'mug' as a pool in shards, so it is not opened"):
        one_pool(gate)
    assert gate.names_of("mug") == names


def test_shards_with_other_names_are_not_opened_beside_those_that_sold(gate: Gate) -> None:
    gate.open(Shard("mug", 1, "zz"), [5])
    with pytest.raises(InvalidInput, match=r"^the order database knows 'mug' in other shards, so it is not opened"):
        in_shards(gate)


def test_skus_that_only_look_alike_are_others(gate: Gate) -> None:
    for sku in ("MUG", "mug2", "mu%", "m_g"):
        one_pool(gate, sku)
    in_shards(gate, "mug")
    in_shards(gate, "M_G")
    one_pool(gate, "mu_")
    assert len(gate.names_of("mug")) == 2
    assert gate.names_of("mu%") == ["mu%"]
