"""Paths of locks in ZooKeeper, the order of a line, and bad input: nothing of it needs a server."""

import random
from typing import Any

import pytest

from segmented.errors import InvalidInput
from segmented.locks import ZooKeeperLock
from segmented.protocol.zookeeper import Contender
from segmented.stores.zookeeper.paths import checked_root, contender, in_order, lock_path
from tests.support.rings import require_module

ROOT = "/segmented/locks"
LAST = 2**31 - 1

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("report", "/segmented/locks/report"),
        ("report:2026-11", "/segmented/locks/report%3A2026-11"),
        ("a/b", "/segmented/locks/a%2Fb"),
        ("a%2Fb", "/segmented/locks/a%252Fb"),
        (".", "/segmented/locks/%2E"),
        ("..", "/segmented/locks/%2E%2E"),
        ("%2E", "/segmented/locks/%252E"),
        ("a.b", "/segmented/locks/a.b"),
        ("票 x", "/segmented/locks/%E7%A5%A8%20x"),
    ],
)
def test_a_name_is_percent_encoded_into_one_segment(name: str, path: str) -> None:
    assert lock_path(ROOT, name) == path


@pytest.mark.parametrize("root", ["", "/", "//", "locks", "/a//b", "/a/./b", "/..", "/a\n", "/\ud800", 7, None, b"/a"])
def test_a_root_that_is_no_path_is_refused_with_one_sentence(root: Any) -> None:  # noqa: ANN401  # on purpose wrong
    with pytest.raises(InvalidInput, match=r"^root of .* is not a path for locks: give one like '/segmented/locks'$"):
        checked_root(root)


def test_what_is_no_kazoo_client_is_refused() -> None:
    require_module("ZooKeeper's client", "kazoo")
    with pytest.raises(InvalidInput, match=r"^client is a kazoo.client.KazooClient, not str: 'localhost:2181'$"):
        ZooKeeperLock("localhost:2181", "report")


def test_nodes_of_others_are_no_contenders() -> None:
    nodes = ["ab-0000000007", "ab--2147483648", "ab", "ab-", "-0000000001", "ab-x", "ab-١", "ab-0000000001-2"]  # noqa: RUF001  # a digit that is none of ZooKeeper's
    found = [one for node in nodes if (one := contender("/p", node)) is not None]
    assert found == [Contender("ab", 7, "/p/ab-0000000007"), Contender("ab", -(2**31), "/p/ab--2147483648")]


@pytest.mark.parametrize("sequences", [[0, 1, 9, 10, 11], [LAST - 2, LAST - 1, LAST, -LAST - 1, -LAST], [-2, -1, 0, 1]])
def test_the_order_is_that_of_arrival_also_when_the_counter_wraps(sequences: list[int]) -> None:
    arrived = [Contender("ab", sequence, f"/p/ab-{sequence:010d}") for sequence in sequences]
    shuffled = random.Random(7).sample(arrived, len(arrived))
    assert in_order(shuffled) == tuple(arrived)
