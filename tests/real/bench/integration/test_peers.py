"""The machinery that runs the conformance suite on other libraries' locks, on redis-py's, which is installed anyway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.conformance.locks.comparison import compare
from tests.conformance.locks.page import render

if TYPE_CHECKING:
    from tests.conformance.locks.registry import Peer

OURS: Final = Path(sys.executable)
MASKED: Final = "the body's error is masked by another: LockNotOwnedError: Cannot release a lock that's no longer owned"


def our_python(_: Peer) -> Path:
    return OURS


def test_a_row_of_the_suite_is_run_on_each_lock_of_a_peer_and_makes_a_page() -> None:
    told: list[str] = []
    found = compare(peers=["redis-py"], rows=["A8"], python_of=our_python, tell=told.append)
    threads, asyncio = found["contenders"]
    assert [row["id"] for row in found["rows"]] == ["A8"]
    assert (threads["title"], threads["colour"], asyncio["colour"]) == ("redis-py", "threads", "asyncio")
    for contender in (threads, asyncio):
        assert contender["results"]["A8"]["why"] == MASKED
    assert len(told) == 2
    page = render(found)
    assert f"- A8: {MASKED}." in page
