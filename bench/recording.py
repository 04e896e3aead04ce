"""Records the page of `segmented watch --web` while two pools sell the same stock: one lock, and 20 segment locks.

    python -m bench.recording docs/charts

Writes watch-light.webp and watch-dark.webp, and of each a still for readers who want no motion, watch-light-still.webp
and watch-dark-still.webp. Needs Chromium and its driver. The sale is real: threads hold the lock for 20 ms an order on
a private Valkey.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PIL import Image

from bench.demo import watch_page
from segmented.errors import InvalidInput, NotGranted, SegmentedError
from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

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
        raise InvalidInput("Chromium or its driver is missing: install the packages chromium and chromium-driver")
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
            raise InvalidInput("the driver of Chromium does not answer")
        time.sleep(LOOK_SECONDS)


STOCK: Final = 3_000
SEGMENTS: Final = {"one-lock": 1, "20-locks": 20}
BUYERS: Final = 24
HOLD_SECONDS: Final = 0.02
FRAME_SECONDS: Final = 0.25
FRAMES_MAX: Final = 60
LAST_FRAME_MS: Final = 3_000
SCHEMES: Final = ("light", "dark")
WIDTH: Final = 960
HEIGHT: Final = 890


def record(folder: Path) -> None:
    """Sell both pools at once; write what the page showed, in light and in dark, as animated WebP and as a still."""
    with ValkeyServer.start() as server, RedisStore.from_url(server.url) as store, ExitStack() as stack:
        pools = [Pool(store, sku, ttl=5) for sku in SEGMENTS]
        for pool in pools:
            pool.open(stock=STOCK, segments=SEGMENTS[pool.sku])
        address = stack.enter_context(watch_page(server.url, *SEGMENTS, every=0.2))
        shown = {}
        for scheme in SCHEMES:
            shown[scheme] = stack.enter_context(browser(WIDTH, HEIGHT))
            shown[scheme].prefer(scheme)
            shown[scheme].open(address)
        frames = _frames([*shown.values()], pools)
    for scheme, taken in zip(SCHEMES, zip(*frames, strict=True), strict=True):
        first, *others = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in taken]
        pauses = [int(FRAME_SECONDS * 1_000)] * len(others) + [LAST_FRAME_MS]
        file, still = folder / f"watch-{scheme}.webp", folder / f"watch-{scheme}-still.webp"
        first.save(file, save_all=True, append_images=others, duration=pauses, loop=0, quality=70, method=4)
        others[len(others) // 2].save(still, quality=80, method=6)


def _frames(shown: list[Browser], pools: list[Pool]) -> list[list[bytes]]:
    """Take pictures at each interval until a pool is sold out; a slow machine takes fewer."""
    over = threading.Event()
    buyers = [threading.Thread(target=_buy, args=(pool, over)) for pool in pools for _ in range(BUYERS)]
    frames = [[one.screenshot() for one in shown]]
    for buyer in buyers:
        buyer.start()
    try:
        while len(frames) < FRAMES_MAX and all(pool.available() for pool in pools):
            began = time.monotonic()
            frames.append([one.screenshot() for one in shown])
            time.sleep(max(0.0, FRAME_SECONDS - (time.monotonic() - began)))
        time.sleep(2 * FRAME_SECONDS)
        frames.append([one.screenshot() for one in shown])
    finally:
        over.set()
        for buyer in buyers:
            buyer.join()
    return frames


def _buy(pool: Pool, over: threading.Event) -> None:
    while not over.is_set():
        try:
            with pool.grant(Order(uuid.uuid4().hex), timeout=5):
                time.sleep(HOLD_SECONDS)
        except NotGranted:
            return
        except SegmentedError:  # such as no lock in time: the next order may have one
            continue


if __name__ == "__main__":
    record(Path(sys.argv[1]))
