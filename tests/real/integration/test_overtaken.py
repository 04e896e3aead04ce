"""A process that saw a lost change notices it, although others have made as many changes on the next server since."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from segmented import Pool, RedisStore, Reserved
from segmented.errors import PoolFrozen
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from tests.support.command_line import ran

SKU: Final = "mug"
SAFE: Final = {"appendfsync": "always"}
KEYS: Final = shard_keys(SKU)


@pytest.fixture
def server(start_valkey: Callable[..., ValkeyServer], tmp_path: Path) -> ValkeyServer:
    """A server that keeps every acknowledged change."""
    return start_valkey(tmp_path / "data", config=SAFE)


@contextmanager
def process(server: ValkeyServer) -> Iterator[Pool]:
    """The pool of a process that has just been started."""
    with RedisStore.from_url(server.url) as store:
        yield Pool(store, SKU)


@pytest.fixture
def pool(server: ValkeyServer) -> Iterator[Pool]:
    """Twenty units in four segments, of which one is reserved: changes 1 and 2."""
    with process(server) as pool:
        pool.open(stock=20, segments=4)
        assert take(pool, "first") == 2
        yield pool


def take(pool: Pool, order_id: str) -> int:
    """Reserve, and return the number of the change."""
    answer = pool.reserve(order_id)
    assert isinstance(answer, Reserved)
    return answer.sequence


def restart(server: ValkeyServer) -> None:
    server.kill()
    server.restart()


@contextmanager
def forgotten(server: ValkeyServer) -> Iterator[None]:
    """Start the server again without what the body changed."""
    with RedisStore.from_url(server.url) as store:
        before = {key: store.client.dump(key) for key in KEYS.listed()}
    yield
    with RedisStore.from_url(server.url) as store:
        store.client.delete(*before)
        for key, content in before.items():
            if content is not None:
                store.client.restore(key, 0, content)
    restart(server)


def test_a_lost_change_is_noticed_although_another_one_has_its_number(server: ValkeyServer, pool: Pool) -> None:
    with forgotten(server):
        assert take(pool, "lost") == 3
    with process(server) as other:
        assert [take(other, f"new {number}") for number in range(2)] == [3, 4]
        with pytest.raises(PoolFrozen) as error:
            pool.reserve("next")
        assert (error.value.found, error.value.seen) == ((1, 4), (1, 3))
        with pytest.raises(PoolFrozen):
            other.reserve("next")
    audited = ran("pool", "audit", SKU, url=server.url)
    told = f"frozen: {SKU} is at change 4 of epoch 1, and another change 3 of epoch 1 was acknowledged: it is lost"
    assert told in audited.stdout
    assert pool.thaw(sold=0).state.reserved == 3
    assert take(pool, "next") == 7
    assert pool.audit().is_clean


def test_a_server_that_forgot_nothing_is_told_from_one_that_did(server: ValkeyServer, pool: Pool) -> None:
    for number in range(3):
        restart(server)
        with process(server) as other:
            assert take(other, f"other {number}") == 2 * number + 3
            assert take(pool, f"kept {number}") == 2 * number + 4
            assert pool.state().frozen is None
    assert pool.audit().is_clean


def test_a_lost_thaw_is_noticed_although_another_one_began_the_same_epoch(server: ValkeyServer, pool: Pool) -> None:
    with process(server) as first, process(server) as other:
        with forgotten(server):
            assert [take(one, f"lost {number}") for number, one in enumerate((first, pool, pool))] == [3, 4, 5]
        assert take(other, "kept") == 3
        with forgotten(server):
            with pytest.raises(PoolFrozen):
                first.reserve("next")
            assert first.thaw(sold=0).state.epoch == 2
            assert take(first, "lost with its epoch") == 6
        with pytest.raises(PoolFrozen):
            pool.reserve("next")
        assert (pool.thaw(sold=0).state.epoch, pool.state().sequence) == (2, 7)
        with pytest.raises(PoolFrozen) as error:
            first.reserve("next")
        assert (error.value.found, error.value.seen) == ((2, 7), (2, 6))


def test_a_change_of_a_server_that_the_pool_has_forgotten_is_noticed(server: ValkeyServer, pool: Pool) -> None:
    with forgotten(server):
        restart(server)
        take(pool, "lost")
    with process(server) as other:
        take(other, "new")
        with pytest.raises(PoolFrozen):
            pool.reserve("next")
