from __future__ import annotations

from tests.support import sync_of


def test_modules_for_threads_are_as_their_source_for_asyncio_says() -> None:
    assert len(sync_of.written()) >= 3
    assert sync_of.main(checks=True) == 0
