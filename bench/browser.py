"""A headless Chromium, driven by the WebDriver protocol (W3C): its driver answers JSON over HTTP on this machine."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS_SECONDS: Final = 60.0
ANSWERS_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
FLAGS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")


class Browser:
    """A session of a browser."""

    def __init__(self, base: str) -> None:
        """Use the session at this address of the driver."""
        self._base = base

    def command(self, path: str, content: dict[str, Any] | None = None, method: str = "POST") -> Any:  # noqa: ANN401  # any JSON value
        """Send one command of the protocol; return its value. Raises urllib.error.HTTPError if it is refused."""
        data = None if method == "GET" else json.dumps(content or {}).encode()
        asked = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310  # the driver's own address
        with urllib.request.urlopen(asked, timeout=ANSWERS_SECONDS) as answer:  # noqa: S310  # the driver on this machine
            return json.load(answer)["value"]

    def open(self, address: str) -> None:
        """Open a page."""
        self.command("/url", {"url": address})

    def prefer(self, scheme: str) -> None:
        """Let pages be `light` or `dark`, and without motion."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.command("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def run(self, script: str) -> Any:  # noqa: ANN401  # any JSON value
        """Run JavaScript in the page; return its result."""
        return self.command("/execute/sync", {"script": script, "args": []})

    def screenshot(self) -> bytes:
        """Return a PNG of the window."""
        return base64.b64decode(self.command("/screenshot", method="GET"))


@contextmanager
def browser(width: int, height: int) -> Iterator[Browser]:
    """Start Chromium with a window of this size in CSS pixels. Raises InvalidInput if it or its driver is missing."""
    program = shutil.which("chromedriver")
    if program is None or shutil.which("chromium") is None:
        message = "Chromium or its driver is missing: install the packages chromium and chromium-driver"
        raise InvalidInput(message)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    quiet = subprocess.DEVNULL
    run = subprocess.Popen([program, f"--port={port}"], stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603  # the installed driver
    try:
        _await(port)
        driver = Browser(f"http://127.0.0.1:{port}")
        options = {"args": [*FLAGS, f"--window-size={width},{height}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        session = Browser(f"http://127.0.0.1:{port}/session/{driver.command('/session', wanted)['sessionId']}")
        try:
            yield session
        finally:
            session.command("", method="DELETE")
    finally:
        run.terminate()
        run.wait(STARTS_SECONDS)


def _await(port: int) -> None:
    until = time.monotonic() + STARTS_SECONDS
    while True:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > until:
            message = "the driver of Chromium does not answer"
            raise InvalidInput(message)
        time.sleep(LOOK_SECONDS)
