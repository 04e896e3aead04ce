"""The report of the published session on a phone, in a real Chromium."""

from __future__ import annotations

import shutil
import threading
import time
from typing import Final

import pytest

from bench.recording import browser
from tests.support.paths import ROOT
from tests.support.rings import require

REPORT: Final = ROOT / "docs/results/2026-11-28/report.html"
PHONE: Final = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
SECONDS: Final = 100.0
OPEN: Final = 'return [...document.querySelectorAll("details.section")].map((one) => one.open)'


@pytest.fixture(autouse=True)
def _chromium_is_there() -> None:
    found = bool(shutil.which("chromedriver") and shutil.which("chromium"))
    require("Chromium", found=found, missing="there is no chromedriver")


def test_on_a_phone_all_sections_but_the_first_are_folded_and_links_open_theirs() -> None:
    with browser(500, 900) as shown:
        shown.command("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": PHONE})
        shown.open(REPORT.as_uri())
        assert shown.run(OPEN) == [True] + [False] * 8
        assert shown.run("return document.documentElement.scrollWidth <= window.innerWidth")
        shown.run("document.querySelector(\"nav a[href='#noise']\").click()")
        opened = [True, False, False, False, False, True, False, False, False]
        deadline = time.monotonic() + SECONDS  # the browser tells the page of its new address a moment later
        while shown.run(OPEN) != opened:
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)
        assert shown.run('return document.getElementById("noise").getBoundingClientRect().top < window.innerHeight')


def test_on_a_wide_screen_all_sections_are_open() -> None:
    with browser(1_280, 900) as shown:
        shown.open(REPORT.as_uri())
        assert shown.run(OPEN) == [True] * 9
