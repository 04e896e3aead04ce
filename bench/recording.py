"""Records the page of `segmented watch --web` while two pools sell the same stock: one lock, and 20 segment locks.

    python -m bench.recording docs/charts

Writes watch-light.webp and watch-dark.webp, and of each a still for readers who want no motion, watch-light-still.webp
and watch-dark-still.webp. Needs Chromium and its driver. The sale is real: threads hold the lock for 20 ms an order on
a private Valkey.
"""

from __future__ import annotations

import io
import sys
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image

from bench.browser import browser
from bench.watch_page import watch_page
from segmented.errors import NotGranted, SegmentedError
from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from bench.browser import Browser

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
