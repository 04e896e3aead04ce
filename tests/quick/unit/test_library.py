"""The library describes itself: the reference and the texts of scripts."""

import re
import sys
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any, Final

import pytest
import redis
import valkey
from redis import asyncio as redis_asyncio
from redis.exceptions import ResponseError
from redis.sentinel import Sentinel
from sqlalchemy import create_engine
from valkey import asyncio as valkey_asyncio

from segmented import AsyncMemoryStore, InvalidInput, Lock, MemoryStore, locks
from segmented.clock import ManualClock
from segmented.dedup import SqlRecords
from segmented.locks import AsyncReadWriteLock, ReadWriteLock
from segmented.protocol import ReleaseLock
from segmented.protocol.wire import Dialect, load_script, sharded
from segmented.stock import AsyncCarts, AsyncPool, AsyncShardedPool, Carts, Pool, ShardedPool
from segmented.stores.memory import Engine, MemoryModel
from segmented.stores.redis import RedisStore
from tests.support.contract.locks.kinds import HANDLES, LOCK_KINDS, USES, page
from tests.support.paths import ROOT
from tests.support.reference import python_page

LOCKS: Final[list[Any]] = [
    getattr(locks, f"{prefix}{name}")
    for name in ("MultiLock", *(kind.handle for kind in LOCK_KINDS if kind.name != "read_write"))
    for prefix in ("", "Async")
]
WITHOUT_STORE: Final[list[Any]] = [
    getattr(locks, f"{prefix}{name}Lock") for name in ("SqlRow", "ZooKeeper") for prefix in ("", "Async")
]


@pytest.mark.parametrize("kind", [*LOCKS, *WITHOUT_STORE, ReadWriteLock, AsyncReadWriteLock, Pool, AsyncPool])
def test_an_option_of_another_library_is_answered(kind: Any) -> None:  # noqa: ANN401  # of any kind
    with pytest.raises(InvalidInput, match=rf"^{kind.__name__}\(\) has no timeout: the time to live is ttl=seconds"):
        kind(None, "x", timeout=3)
    with pytest.raises(InvalidInput, match=rf"^{kind.__name__}\(\) takes its options by name"):
        kind(None, "x", *range(9))
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        kind(None, "x", nonsense=1)


@pytest.mark.parametrize("kind", [*LOCKS, *WITHOUT_STORE])
def test_a_method_or_its_argument_of_another_library_is_answered(kind: Any) -> None:  # noqa: ANN401  # of any kind
    lock = object.__new__(kind)
    for named in ({"blocking": False}, {"blocking_timeout": 5}, {"blocking": True, "timeout": 5}):
        with pytest.raises(InvalidInput, match=r"\.acquire\(\) has no blocking.*: use try_acquire\(\)"):
            lock.acquire(**named)
    for name in ("tryLock", "extend", "forceUnlock"):
        with pytest.raises(AttributeError, match=f"^{kind.__name__} has no '{name}': "):
            getattr(lock, name)
    with pytest.raises(AttributeError, match="object has no attribute 'nonsense'"):
        _ = lock.nonsense


def test_a_subclass_may_pass_on_any_argument_and_name_its_acquire_otherwise() -> None:
    class Logged(Lock):
        def acquire(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever Lock's takes
            return super().acquire(*args, **named)

    class Brief(Lock):
        acquire = partialmethod(Lock.acquire, timeout=0)

    logged: Any = Logged(MemoryStore(), "a")
    assert logged.acquire(timeout=0).is_trusted
    brief: Any = Brief(MemoryStore(), "a")
    assert brief.acquire().is_trusted


def test_a_lease_answers_a_method_of_another_library() -> None:
    lease: Any = Lock(MemoryStore(), "a").acquire()
    with pytest.raises(AttributeError, match=r"^Lease has no 'extend': lease\.renew\(ttl=seconds\)"):
        lease.extend()


def test_the_page_is_what_the_docstrings_say() -> None:
    written = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert written == python_page(), "`make docs` writes it"


LUA = [path for path in (ROOT / "segmented" / "protocol").rglob("*.lua") if path.name != "kind.lua"]
SCRIPTS = sorted(path.stem for path in LUA if path.parent.name != "shared")
DEFINED = re.compile(r"^local function (\w+)\(", re.MULTILINE)


def test_a_script_that_reads_a_pool_is_less_than_half_of_what_is_shared() -> None:
    shared = (ROOT / "segmented" / "protocol" / "shared" / "pool.lua").read_text()
    assert len(DEFINED.findall(load_script("read_pool").text)) < len(DEFINED.findall(shared)) / 2


def test_in_a_cluster_each_message_of_a_script_goes_to_the_nodes_of_its_slot_only() -> None:
    for name in SCRIPTS:
        script = load_script(name)
        assert script.in_cluster is not None
        assert script.in_cluster.text.replace("'SPUBLISH'", "'PUBLISH'") == script.text
        assert "'PUBLISH'" not in script.in_cluster.text
        assert (script.in_cluster.sha == script.sha) is ("'PUBLISH'" not in script.text)


def test_in_a_cluster_the_message_of_a_release_goes_to_the_nodes_of_its_slot_only() -> None:
    one = ReleaseLock("a", "me").native(Dialect.VALKEY)
    node = sharded(one)
    assert [command[0] for command in one] == ["DELIFEQ", "PUBLISH"]
    assert [command[0] for command in node] == ["DELIFEQ", "SPUBLISH"]
    assert [command[1:] for command in one] == [command[1:] for command in node]


def test_without_lua_a_store_in_memory_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa.lua51", None)
    with pytest.raises(InvalidInput, match=r"needs the package lupa: pip install '\.\[testing\]' in the checkout"):
        Engine()
    with pytest.raises(InvalidInput) as caught:
        SqlRecords(create_engine("sqlite:///records.db"))
    assert str(caught.value).startswith(
        "SqlRecords needs the package lupa: pip install '.[sql-records]' in the checkout"
    )


@pytest.mark.parametrize("text", ["found = 1", "return found"], ids=["written", "read"])
def test_a_script_neither_writes_nor_reads_a_global(text: str) -> None:
    model = MemoryModel(ManualClock())
    refused = model.ask("EVAL", f"#!lua\n{text}\n", 0)
    assert isinstance(refused, ResponseError)
    assert "global variable 'found'" in str(refused) or "readonly table" in str(refused)


class FakeRedis(redis.Redis):
    """A client as fakeredis makes it: a class of its own over redis-py's."""

    __module__ = "fakeredis"


class GlideClient:
    """As valkey-glide's client looks from outside: a class of another package."""

    __module__ = "glide.glide_client"


valkey_watchers: Any = valkey.sentinel.Sentinel([])  # type: ignore[no-untyped-call]  # valkey-py's is untyped
REFUSED: Final[list[tuple[object, str]]] = [
    (None, "needs a client of redis-py (redis.Redis or redis.RedisCluster), and got None"),
    (b"redis://:secret@host", "takes a client or a URL, which is a str, not bytes: decode it"),
    (redis_asyncio.Redis(), "not a client for asyncio: use AsyncRedisStore for it"),
    (redis.Redis().pipeline(), "takes a client, not a pipeline: pass"),
    (redis.Redis().pubsub(), "and got redis.client.PubSub"),
    (redis.ConnectionPool(), "and got redis.connection.ConnectionPool"),
    (Sentinel([]).slave_for("stock"), "use Sentinel.master_for(...), not slave_for"),
    (redis.Redis(encoding="utf-16"), "cannot use a client with encoding='utf-16'"),
    (redis.Redis(encoding="cp037"), "cannot use a client with encoding='cp037'"),
    (redis.Redis(encoding="no such"), "cannot use a client with encoding='no such'"),
    (FakeRedis(), "does not work with fakeredis"),
    (GlideClient(), "and got glide.glide_client.GlideClient"),
    (MemoryStore(), "and got segmented.stores.memory"),
    (valkey_asyncio.Valkey(), "not a client for asyncio: use AsyncRedisStore for it"),
    (valkey.Valkey().pipeline(), "takes a client, not a pipeline: pass"),
    (valkey_watchers.master_for("stock"), "accepts only single-server clients of valkey-py"),
    (valkey.Valkey(encoding="utf-16"), "cannot use a client with encoding='utf-16'"),
]


def sentence_of(make: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("given", "sentence"), REFUSED)
def test_what_cannot_serve_is_refused_at_construction(given: Any, sentence: str) -> None:  # noqa: ANN401  # what a caller may give
    said = sentence_of(lambda: RedisStore(given))
    assert said.startswith("RedisStore ")
    assert sentence in said


# --- where a store is meant ---

OF_ONE_SERVER: Final = [kind for kind in HANDLES if kind.servers == 1]
SYNC: Final[dict[str, Callable[[Any], object]]] = {
    **{kind.title: partial(kind.sync, name="x") for kind in OF_ONE_SERVER},
    "Pool": partial(Pool, sku="x"),
    "ShardedPool": partial(ShardedPool, sku="x"),
    "Carts": Carts,
}
ASYNC: Final[dict[str, Callable[[Any], object]]] = {
    **{kind.title: partial(kind.asyncio, name="x") for kind in OF_ONE_SERVER},
    "AsyncPool": partial(AsyncPool, sku="x"),
    "AsyncShardedPool": partial(AsyncShardedPool, sku="x"),
    "AsyncCarts": AsyncCarts,
}


@pytest.mark.parametrize("make", SYNC.values(), ids=SYNC)
def test_a_store_for_asyncio_or_a_bare_client_is_no_store_for_threads(make: Callable[[Any], object]) -> None:
    assert "needs a store for threads, such as RedisStore, and got AsyncMemoryStore" in sentence_of(
        lambda: make(AsyncMemoryStore())
    )
    for client in (redis.Redis(), redis.Redis().pipeline(), redis_asyncio.Redis(), valkey.Valkey()):
        said = sentence_of(lambda client=client: make(client))  # type: ignore[misc]  # called at once
        assert said.endswith(f"needs a store, and got the client {type(client).__name__}: give RedisStore(client)")


@pytest.mark.parametrize("make", ASYNC.values(), ids=ASYNC)
def test_a_store_for_threads_or_a_bare_client_is_no_store_for_asyncio(make: Callable[[Any], object]) -> None:
    assert "needs a store for asyncio, such as AsyncRedisStore, and got MemoryStore" in sentence_of(
        lambda: make(MemoryStore())
    )
    assert sentence_of(lambda: make(redis_asyncio.Redis())).endswith(
        "needs a store, and got the client Redis: give AsyncRedisStore(client)"
    )


# The records of the kinds of lock: what derives from them has every kind.


NAMED: Final = re.compile(r"^  name = '(\w+)',$", re.MULTILINE)
NAMES = {kind.name for kind in LOCK_KINDS}


def test_every_kind_that_an_operator_may_see_has_one_record() -> None:
    parts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "segmented" / "protocol").glob("*/kind.lua"))]
    assert sorted(name for part in parts for name in NAMED.findall(part)) == sorted(kind.name for kind in LOCK_KINDS)
    assert len(LOCK_KINDS) == len(NAMES)


def test_the_reference_page_is_what_the_records_say() -> None:
    written = (ROOT / "docs" / "reference" / "lock-kinds.md").read_text(encoding="utf-8")
    assert written == page(), "make docs"


def test_metrics_count_the_leases_of_each_kind_by_its_name() -> None:
    assert [use.acquire("a", "holder").lease_kind for use in USES] == [use.kind for use in USES]
    assert {use.kind for use in USES} == NAMES - {"get_set"}, "whose lock is no operation"
