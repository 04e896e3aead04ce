"""Servers for the suite: the session's, and two more for locks that a majority keeps."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS: Final = 3


@pytest.fixture(scope="session")
def lab_urls(valkey_url: str) -> Iterator[list[str]]:
    """The addresses of independent servers; the first is the session's."""
    with ExitStack() as servers:
        yield [valkey_url, *(servers.enter_context(ValkeyServer.start()).url for _ in range(SERVERS - 1))]
