"""The examples of the pages on providers and on keys, run as they stand, on a real server."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine

from segmented import RedisStore
from tests.contract.test_dedup_docs import PAGES, PYTHON, examples

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

ROOM = {"room": 5}


def test_the_examples_of_call_a_provider_once_work_as_they_stand(valkey: ValkeyServer, sqlite_url: str) -> None:
    sent: list[tuple[str, str, str]] = []

    def send(mobile: str, text: str, *, key: str) -> str:
        sent.append((mobile, text, key))
        return f"sms-{len(sent)}"

    order = SimpleNamespace(id="o-7", mobile="+49 170 0", lines=[])
    names: dict[str, Any] = {
        "order": order,
        "provider": SimpleNamespace(send=send),
        "text": "on its way",
        "engine": create_engine(sqlite_url),
        "key": "o-7",
        "book": lambda _connection, _order: ROOM,
    }
    first, certain, at_once, by_hand = examples("call-a-provider-once.md", valkey.url)
    for block in (first, first, certain, at_once):
        exec(block, names)  # noqa: S102  # our own page
    assert (names["message_id"], names["answer"]) == ("sms-1", ROOM)
    assert [one[:2] for one in sent] == [(order.mobile, "on its way")]
    names["store"].client.flushall()
    names["run"] = names["Dedup"](names["store"], "bookings").begin("o-7")
    names["book"] = lambda _connection, _order: {"room": 6}
    exec(by_hand, names)  # noqa: S102  # our own page
    assert names["answer"] == ROOM
    names["store"].close()
    names["engine"].dispose()


def test_the_example_of_see_and_free_keys_works_as_it_stands(valkey: ValkeyServer) -> None:

    (block,) = PYTHON.findall(Path(PAGES / "see-and-free-keys.md").read_text(encoding="utf-8"))
    with RedisStore.from_url(valkey.url) as store:
        names: dict[str, Any] = {"store": store}
        exec(block, names)  # noqa: S102  # our own page
    assert (names["count"].freed, names["count"].unknown) == (0, 0)
