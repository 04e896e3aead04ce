"""Runs Locust on a locustfile of the checkout, and asks its page."""

from __future__ import annotations

import http.client
import os
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from tests.support.paths import ROOT
from tests.support.processes import Logged

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

WAIT_SECONDS: Final = 200.0
LOOK_SECONDS: Final = 0.05


@contextmanager
def locust(scenario: str, *options: str, url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    started = Logged(
        [sys.executable, "-m", "locust", "-f", f"bench/scenarios/{scenario}.py", "--only-summary", *options],
        folder / "said",
        cwd=ROOT,
        environment=os.environ | {"SEGMENTED_URL": url, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield started.process
    finally:
        started.kill()


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def got(port: int, path: str) -> bytes:
    """The answer of Locust's page, as soon as it answers."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)) as connection:
                connection.request("GET", path)
                return connection.getresponse().read()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            threading.Event().wait(LOOK_SECONDS)


def asked(port: int, method: str, path: str, fields: dict[str, str] | None = None, **headers: str) -> int:
    """The status of an answer of Locust's page."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)) as connection:
        body = None if fields is None else urlencode(fields)
        sent = {"Content-Type": "application/x-www-form-urlencoded"} if fields else {}
        connection.request(method, path, body, sent | headers)
        return connection.getresponse().status
