"""At the first contact: what cannot be used is told in one sentence, without the password."""

import asyncio
import os
import signal
import socketserver
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable
from segmented.masking import masked
from segmented.protocol import AcquireLock, ReadPool
from segmented.servers import ValkeyServer
from segmented.stores.redis import AsyncRedisStore, RedisStore

pytestmark = pytest.mark.usefixtures("patient_attempts")

SECRET: Final = "open sesame/#1"
QUOTED: Final = "open%20sesame%2F%231"


def connect_sync(url: str) -> None:
    RedisStore.from_url(url).close()


def connect_async(url: str) -> None:
    async def connect() -> None:
        await (await AsyncRedisStore.from_url(url)).close()

    asyncio.run(connect())


one_colour = pytest.mark.parametrize("connect", [connect_sync])
both_colours = pytest.mark.parametrize("connect", [connect_sync, connect_async])


def sentence_of(
    connect: Callable[[str], None], url: str, kind: type[InvalidInput | StoreUnavailable] = InvalidInput
) -> str:
    """Return what is said about a URL; always one line, never with the password."""
    with pytest.raises((InvalidInput, StoreUnavailable)) as caught:
        connect(url)
    assert type(caught.value) is kind
    sentence = str(caught.value)
    assert "\n" not in sentence
    for secret in (SECRET, QUOTED, "sesame"):
        assert secret not in sentence
    return sentence


@one_colour
def test_a_socket_where_no_server_is(connect: Callable[[str], None], tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/none.sock"
    assert sentence_of(connect, url, StoreUnavailable).startswith(f"no server answers at {url}: ")


@both_colours
def test_a_port_where_no_server_is(connect: Callable[[str], None]) -> None:
    sentence = sentence_of(connect, f"redis://user:{QUOTED}@127.0.0.1:1/0", StoreUnavailable)
    assert sentence.startswith("no server answers at redis://user:***@127.0.0.1:1/0: ")


@pytest.fixture
def locked_valkey(start_valkey: Callable[..., ValkeyServer]) -> str:
    """The URL, without its password, of a server that asks for one."""
    return start_valkey(config={"requirepass": f'"{SECRET}"'}).url


@both_colours
def test_a_wrong_password_and_none(connect: Callable[[str], None], locked_valkey: str) -> None:
    url = f"{locked_valkey}&password=sesame"
    assert sentence_of(connect, url) == f"{masked(url)} refused the password or account of the URL"
    assert sentence_of(connect, locked_valkey).startswith(
        f"{locked_valkey} asks for a password, and the URL has none: "
    )


def test_a_store_names_its_server_without_the_password(locked_valkey: str) -> None:
    with RedisStore.from_url(f"{locked_valkey}&password={QUOTED}") as store:
        assert repr(store) == f"RedisStore({locked_valkey}&password=***, compare-and-delete by DELIFEQ)"


@both_colours
def test_an_account_that_may_not_look_at_the_server(
    connect: Callable[[str], None], private_valkey: ValkeyServer
) -> None:
    with redis.Redis.from_url(private_valkey.url) as server:
        server.execute_command("ACL", "SETUSER", "poor", "on", ">sesame", "~*", "&*", "+@all", "-info")
    sentence = sentence_of(connect, f"{private_valkey.url}&username=poor&password=sesame")
    assert sentence.startswith("the account of unix://")
    assert "may not run INFO, which is needed to check the server" in sentence


@both_colours
@pytest.mark.parametrize("command", ["evalsha"])
def test_an_account_that_may_not_run_scripts(
    connect: Callable[[str], None], private_valkey: ValkeyServer, command: str
) -> None:
    with redis.Redis.from_url(private_valkey.url) as server:
        server.execute_command("ACL", "SETUSER", "poor", "on", ">sesame", "~*", "&*", "+@all", f"-{command}")
    url = f"{private_valkey.url}&username=poor&password=sesame"
    sentence = sentence_of(connect, url)
    needs = "runs no scripts for this account, but locks and stock need them: "
    assert sentence.startswith(f"the server at {masked(url)} {needs}")
    assert f"'{command}'" in sentence


@one_colour
def test_a_server_whose_script_commands_are_renamed(
    connect: Callable[[str], None], start_valkey: Callable[..., ValkeyServer]
) -> None:
    url = start_valkey(config={"rename-command": 'EVALSHA ""'}).url
    sentence = sentence_of(connect, url)
    assert sentence.startswith(f"the server at {url} runs no scripts for this account, but locks and stock need ")
    assert "unknown command 'EVALSHA'" in sentence


@one_colour
def test_a_server_whose_memory_is_full_is_used(
    connect: Callable[[str], None], start_valkey: Callable[..., ValkeyServer]
) -> None:
    """What is held there has to be released and settled."""
    connect(start_valkey(config={"maxmemory": "1"}).url)


@one_colour
def test_a_node_of_a_cluster_that_is_named_as_a_single_server(
    connect: Callable[[str], None], start_valkey: Callable[..., ValkeyServer]
) -> None:
    url = start_valkey(config={"cluster-enabled": "yes"}).url
    assert sentence_of(connect, url) == f"the server at {url} is a node of a cluster: give redis+cluster://HOST:PORT"


@one_colour
def test_a_database_that_the_server_does_not_have(connect: Callable[[str], None], valkey_url: str) -> None:
    sentence = sentence_of(connect, valkey_url.replace("db=0", "db=99"))
    assert sentence.startswith("the server at unix://")
    assert "DB index is out of range" in sentence


# --- afterwards ---


def test_a_server_that_has_gone_is_unavailable_and_used_again_when_it_is_back(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        store.execute(AcquireLock("x", "h", 1_000))
        private_valkey.kill()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            store.execute(AcquireLock("x", "h", 1_000))
        private_valkey.restart()
        store.execute(AcquireLock("x", "h", 1_000))


def test_a_password_that_was_changed_is_a_refusal(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, redis.Redis.from_url(private_valkey.url) as server:
        server.config_set("requirepass", "changed")
        server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(StoreRefused, match="refused the "):
            store.execute(ReadPool("x"))


async def open_briefly(url: str, seconds: Any) -> None:  # noqa: ANN401  # as a caller may
    await (await AsyncRedisStore.from_url(url, timeout=seconds)).close()


both_within = pytest.mark.parametrize(
    "connect",
    [
        lambda url, seconds: RedisStore.from_url(url, timeout=seconds).close(),
        lambda url, seconds: asyncio.run(open_briefly(url, seconds)),
    ],
    ids=["sync", "async"],
)


@both_within
def test_the_first_contact_with_a_server_that_hangs_takes_no_longer_than_asked(
    start_valkey: Callable[..., ValkeyServer], connect: Callable[[str, object], None]
) -> None:
    server = start_valkey()
    connect(server.url, timedelta(seconds=30))
    for wrong in (float("nan"), -1, True, "soon"):
        with pytest.raises(InvalidInput, match=r"^timeout is a number of seconds, 0 or more, not "):
            connect(server.url, wrong)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match=r"^no server answers at .*: \w+"):
            connect(server.url, 0.2)
    finally:
        os.kill(server.pid, signal.SIGCONT)


class Impostor(socketserver.StreamRequestHandler):
    """Reads commands as Redis does, and answers as its test says."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(self.rfile.read(int(self.rfile.readline()[1:])))
                self.rfile.read(2)
            self.wfile.write(self.server.answers.get(words[0].upper(), self.server.answers[b""]))  # type: ignore[attr-defined]  # the test's own


IMPOSTORS: Final = {
    "answers PING only": ({b"PING": b"+PONG\r\n", b"": b"-ERR unknown command\r\n"}, "is not usable: unknown command"),
    "has no INFO": (
        {b"": b"-ERR unknown command 'INFO', with args beginning with: \r\n"},
        "has no INFO, which is needed to check it",
    ),
    "has no HELLO": (
        {b"": b"-ERR unknown command 'HELLO', with args beginning with: '3' \r\n"},
        "has no HELLO: add protocol=2 to the URL",
    ),
    "answers with errors to everything": ({b"": b"-ERR not here\r\n"}, "is not usable: not here"),
    "agrees to everything": ({b"": b"+OK\r\n"}, "answers INFO with something else: is it a proxy?"),
    "knows nothing": ({b"": b"$-1\r\n"}, "answers INFO with something else: is it a proxy?"),
    "is a web server": ({b"": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "is not usable: Protocol error"),
}


@pytest.mark.parametrize(("answers", "sentence"), IMPOSTORS.values(), ids=IMPOSTORS)
@both_colours
def test_a_server_or_proxy_that_is_none_of_redis_is_refused(
    connect: Callable[[str], None], answers: dict[bytes, bytes], sentence: str
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Impostor) as server:
        server.daemon_threads, server.answers = True, answers  # type: ignore[attr-defined]  # the test's own
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert sentence in sentence_of(connect, f"redis://127.0.0.1:{server.server_address[1]}/0")
        server.shutdown()


@both_within
def test_the_first_contact_ends_as_asked_though_the_server_hangs_at_its_check(
    connect: Callable[[str, object], None],
) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Impostor) as server:
        server.daemon_threads, server.answers = True, {b"INFO": b"", b"": b"+OK\r\n"}  # type: ignore[attr-defined]  # the test's own
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"redis://127.0.0.1:{server.server_address[1]}/0?protocol=2&socket_timeout=3600"
        errors: list[BaseException] = []

        def contact() -> None:
            with pytest.raises(StoreUnavailable, match=r"^no server answers at .*: \w+") as found:
                connect(address, 0.2)
            errors.append(found.value)

        contacting = threading.Thread(target=contact, daemon=True)  # one that waits for the answer never ends
        contacting.start()
        contacting.join(30)
        assert len(errors) == 1, "it still waits for the answer"
        server.shutdown()
