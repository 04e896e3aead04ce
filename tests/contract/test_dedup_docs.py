"""The examples of the pages on deduplication, run as they stand, on a real server."""

from __future__ import annotations

import json
import re
import sys
import types
from contextlib import AsyncExitStack, ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmented import OtherPayload
from segmented.clock import SystemClock
from tests.contract.web_servers import ask, serve_asgi, serve_wsgi
from tests.fixtures.stores import AsyncSide, Flavour, make_side
from tests.rings import require_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.servers import ValkeyServer

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = "redis://localhost:6379/0"


def examples(page: str, url: str) -> list[str]:
    """Return the Python of a page, with the server of this test in the place of the one it names."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = [block.replace(ADDRESS, url) for block in PYTHON.findall(text)]
    assert url in "".join(found)
    return found


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_examples_of_run_a_call_once_work_as_they_stand(valkey: ValkeyServer, ends: ExitStack) -> None:
    charged: list[tuple[str, int]] = []

    def charge_card(order_id: str, cents: int) -> dict[str, int]:
        charged.append((order_id, cents))
        return {"receipt": len(charged)}

    names: dict[str, Any] = {"charge_card": charge_card}
    for block in examples("run-a-call-once.md", valkey.url):
        exec(block, names)  # noqa: S102  # our own page
        ends.callback(names["store"].close)
    assert charged == [("o-7", 1250), ("o-8", 1250), ("o-9", 1250)]
    assert (names["pay"]("o-7", 1250), names["receipt"]) == ({"receipt": 1}, {"receipt": 3})
    assert names["payments"].begin("points:o-7").result == 10
    with pytest.raises(OtherPayload):
        names["pay"]("o-7", 99)


HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer a", "Idempotency-Key": '"k-1"'}


def check(port: int) -> None:
    """Charge twice under one key, and then in other ways."""
    first, second = (ask(port, "POST", "/charges", b'{"cents": 7}', HEADERS) for _ in range(2))
    assert (first.status, json.loads(first.body), first.is_replayed) == (201, {"charged": 7}, False)
    assert (second.status, json.loads(second.body), second.is_replayed) == (201, {"charged": 7}, True)
    assert second.headers["content-type"] == "application/json"
    assert ask(port, "POST", "/charges", b'{"cents": 8}', HEADERS).status == 422
    assert ask(port, "POST", "/charges", b'{"cents": 8}', {**HEADERS, "Authorization": "Bearer b"}).status == 201
    without = {name: value for name, value in HEADERS.items() if name != "Idempotency-Key"}
    assert ask(port, "POST", "/charges", b'{"cents": 7}', without).code == "missing_key"


def test_the_example_for_flask_works_as_it_stands(valkey: ValkeyServer, ends: ExitStack) -> None:
    require_module("Flask", "flask")
    names: dict[str, Any] = {"__name__": "shop"}
    exec(examples("idempotent-web-handlers.md", valkey.url)[0], names)  # noqa: S102  # our own page
    ends.callback(names["store"].close)
    port, close = serve_wsgi(names["app"])
    ends.callback(close)
    check(port)


class Framework:
    """What the example uses of FastAPI, where that is not installed."""

    def __init__(self, *, lifespan: Callable[[object], Any]) -> None:
        self.lifespan = lifespan
        self.added: Any = None

    def add_middleware(self, kind: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401  # as FastAPI has it
        self.added = kind(self, **options)


def test_the_examples_for_asgi_work_as_they_stand(
    valkey: ValkeyServer, ends: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("fastapi") is None:
        stand_in = types.ModuleType("fastapi")
        stand_in.FastAPI = Framework  # type: ignore[attr-defined]  # a module that is made up
        monkeypatch.setitem(sys.modules, "fastapi", stand_in)
    wsgi, fastapi, asgi = examples("idempotent-web-handlers.md", valkey.url)
    names: dict[str, Any] = {"__name__": "shop"}
    settings = "from segmented.dedup.web import WebOptions\n" + wsgi[wsgi.index("options =") :].partition("\n")[0]
    for block in (settings, fastapi, asgi):
        exec(block, names)  # noqa: S102  # our own page
    side = make_side(Flavour("memory", "async"), SystemClock())
    assert isinstance(side, AsyncSide)
    ends.callback(side.close)
    opened = AsyncExitStack()
    side.wait(opened.enter_async_context(names["lifespan"](names["app"])))
    ends.callback(lambda: side.wait(opened.aclose()))
    port, close = serve_asgi(side, names["application"])
    ends.callback(close)
    check(port)
