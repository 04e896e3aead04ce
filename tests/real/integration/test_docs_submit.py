"""The page on submitting orders: its examples run as they stand and print what the page shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tests.support.paths import ROOT

if TYPE_CHECKING:
    import pytest

    from segmented.servers import ValkeyServer

PAGE: Final = ROOT / "docs" / "how-to" / "submit-orders.md"
BLOCK: Final = re.compile(r"^```python\n(?P<code>.*?)^```\n\n```text\n(?P<shown>.*?)^```", re.MULTILINE | re.DOTALL)
URL: Final = "redis://localhost:6379/0"


def test_the_examples_print_what_the_page_shows(valkey: ValkeyServer, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = [(match["code"], match["shown"]) for match in BLOCK.finditer(text)]
    assert len(blocks) == text.count("```python\n") == 7
    names: dict[str, Any] = {}
    for code, shown in blocks:
        exec(code.replace(URL, valkey.url), names)  # noqa: S102  # our own page
        assert capsys.readouterr().out == shown
    names["store"].close()
    names["store"].client.close()
