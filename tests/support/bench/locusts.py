"""Runs Locust on a locustfile of the checkout, and asks its page."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_SECONDS: Final = 200.0
LOOK_SECONDS: Final = 0.05


@contextmanager
def locust(scenario: str, *options: str, url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "locust", "-f", f"bench/scenarios/{scenario}.py", "--only-summary", *options],
            cwd=ROOT,
            env=os.environ | {"SEGMENTED_URL": url, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


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
