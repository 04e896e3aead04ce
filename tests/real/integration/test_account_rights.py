"""An account that lacks a right is refused at the first contact, before anything is written."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
import redis

from segmented import protocol as op
from segmented.errors import InvalidInput, StoreRefused
from segmented.keys import shard_keys
from segmented.locks import AsyncLock, Lock
from segmented.models import Order, Reserved, Settled
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Pool
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.stores.redis.listener import REFUSED
from segmented.stores.redis.rights import IN_CLUSTER, OTHERS, SAMPLES
from tests.support.servers.deployments import Cluster
from tests.support.workers.selling import until

COMMANDS: Final = sorted({*SAMPLES, *(line.split()[0] for line in OTHERS)})
ALL: Final = ("~seg:*", "&seg:*", "+@all")


class Account:
    """An account of a server, whose rules change."""

    def __init__(self, server: redis.Redis, url: str) -> None:
        self.server = server
        self.url = f"{url}&username=app&password=pw"

    def may(self, *rules: str) -> None:
        self.server.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", *rules)


@pytest.fixture
def account(private_valkey: ValkeyServer) -> Iterator[Account]:
    with redis.Redis.from_url(private_valkey.url) as server:
        yield Account(server, private_valkey.url)


def by_url(url: str) -> None:
    RedisStore.from_url(url).close()


def by_client(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        RedisStore(client).close()


def unchecked(url: str) -> None:
    with redis.Redis.from_url(url) as client, RedisStore.unchecked(client) as store:
        store.execute(op.OpenPool("poster", 10, 2, gated=False))


def by_url_in_asyncio(url: str) -> None:
    async def connect() -> None:
        await (await AsyncRedisStore.from_url(url)).close()

    asyncio.run(connect())


each_contact = pytest.mark.parametrize("contact", [by_url, by_client, unchecked, by_url_in_asyncio])


@each_contact
def test_each_denied_command_of_a_store_is_named_before_anything_is_written(
    account: Account, contact: Callable[[str], None]
) -> None:
    for command in COMMANDS:
        account.may(*ALL, f"-{command.lower()}")
        with pytest.raises(InvalidInput) as caught:
            contact(account.url)
        is_message = command in {"PUBLISH", "SUBSCRIBE"}
        rule = f"+{command.lower()} &seg:*" if is_message else f"+{command.lower()}"
        said = f"{command} to the channels of its keys" if is_message else command
        assert f" may not {said}, which locks and stock need: add the rule with " in str(caught.value)
        assert str(caught.value).endswith(f"ACL SETUSER <account> {rule}")
        assert "pw" not in str(caught.value)
    assert (len(COMMANDS), account.server.dbsize()) == (45, 0)


@each_contact
def test_an_account_without_channels_is_refused_with_the_rule_to_add(
    account: Account, contact: Callable[[str], None]
) -> None:
    account.may("~seg:*", "+@all", "resetchannels")
    with pytest.raises(InvalidInput, match=r"ACL SETUSER <account> \+publish \+subscribe &seg:\*$"):
        contact(account.url)
    assert account.server.dbsize() == 0


@each_contact
def test_an_account_with_the_rights_to_its_own_names_is_used(account: Account, contact: Callable[[str], None]) -> None:
    for rules in (ALL, ("~seg:{poster:*", "&seg:{poster:*", "+@all"), ("~*", "&*", "+@all")):
        account.may(*rules)
        contact(account.url)


@pytest.mark.parametrize("denied", [line.split()[0] for line in IN_CLUSTER])
def test_an_account_of_a_cluster_may_send_and_get_the_messages_of_its_slots(cluster: Cluster, denied: str) -> None:
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "app", "reset", "on", ">pw", *ALL, f"-{denied.lower()}")
    url = cluster.url.replace("://", "://app:pw@")
    with pytest.raises(InvalidInput, match=rf"may not {denied} to the channels of its keys") as caught:
        by_url(url)
    assert str(caught.value).endswith(f"ACL SETUSER <account> +{denied.lower()} &seg:*")
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "app", f"+{denied.lower()}")
    by_url(url)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_an_account_without_the_channel_of_its_listener_is_told_so(
    account: Account, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    """The rights of an account with the keys of its own names alone cannot be tried at the first contact."""
    account.may("~seg:lock:{mug*", "&seg:lock:{mug*", "+@all")

    def wait() -> None:
        with RedisStore.from_url(account.url) as store:
            Lock(store, "mug", ttl=60).acquire(timeout=60).release()

    async def wait_in_a_loop() -> None:
        async with await AsyncRedisStore.from_url(account.url) as store:
            await (await AsyncLock(store, "mug", ttl=60).acquire(timeout=60)).release()

    with RedisStore.from_url(account.url) as store, ThreadPoolExecutor(1) as threads:
        lease = Lock(store, "mug", ttl=60).acquire()
        waiting = threads.submit((lambda: asyncio.run(wait_in_a_loop())) if is_async else wait)
        until(lambda: REFUSED in caplog.text)
        account.may(*ALL)
        lease.release()
        waiting.result(60)
    assert caplog.text.count(REFUSED) == 1


def test_channels_that_are_taken_away_later_stop_no_sale_and_no_release(account: Account) -> None:
    account.may(*ALL)
    with RedisStore.from_url(account.url) as store:
        pool = Pool(store, "poster")
        pool.open(stock=10, segments=2)
        grant = pool.grant(Order("a", 2))
        assert isinstance(grant, Grant)
        lease = Lock(store, "x", ttl=60).try_acquire()
        account.server.execute_command("ACL", "SETUSER", "app", "resetchannels")
        assert isinstance(grant.confirm(), Settled)
        assert lease is not None
        lease.release()
        assert isinstance(pool.reserve(Order("b", 3)), Reserved)
        assert pool.audit().is_clean


@pytest.mark.parametrize("denied", ["hset", "zrem", "zadd"])
def test_a_change_whose_script_was_refused_in_the_middle_is_mended_by_the_repair(account: Account, denied: str) -> None:
    """A right that is taken away after the first contact."""
    account.may(*ALL)
    with RedisStore.from_url(account.url) as store, RedisStore(account.server) as whole:
        pool, mender = Pool(store, "poster"), Pool(whole, "poster")
        pool.open(stock=10, segments=2)
        pool.reserve(Order("other", 1))
        grant = pool.grant(Order("a", 2))
        assert isinstance(grant, Grant)
        account.server.execute_command("ACL", "SETUSER", "app", f"-{denied}")
        with pytest.raises(StoreRefused, match="permissions"):
            grant.confirm()
        assert grant.holder_id  # as another process that goes on with it would
        state = mender.state()
        assert (state.sequence, account.server.xlen(shard_keys("poster").ledger)) == (3, 4)
        assert not mender.audit().is_clean
        assert mender.repair(mender.audit(), yes=True).is_clean
        state = mender.state()
        assert (state.available, state.reserved, state.confirmed) == (7, 1, 2)
        assert isinstance(mender.reserve(Order("b", 3)), Reserved)
        assert mender.audit().is_clean


@each_contact
def test_each_denied_command_is_named_before_anything_is_written(
    account: Account, contact: Callable[[str], None]
) -> None:
    for command in COMMANDS:
        account.may(*ALL, f"-{command.lower()}")
        with pytest.raises(InvalidInput) as caught:
            contact(account.url)
        of_channels = command in {"PUBLISH", "SUBSCRIBE"}
        rule = f"+{command.lower()}" + (" &seg:*" if of_channels else "")
        said = command + (" to the channels of its keys" if of_channels else "")
        assert f" may not {said}, which " in str(caught.value)
        assert str(caught.value).endswith(f"ACL SETUSER <account> {rule}")
        assert "pw" not in str(caught.value)
    assert (len(COMMANDS), account.server.dbsize()) == (45, 0)
