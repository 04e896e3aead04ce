"""What a run leaves out, said at its end, with the command that runs it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.rings import COMMANDS, RINGS

if TYPE_CHECKING:
    from collections.abc import Sequence


KEY: Final = "left_out"

_left_out: Counter[str] = Counter()
"""Ring -> tests."""


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count."""
    for item in items:
        _left_out[next(ring for ring in RINGS if item.get_closest_marker(ring))] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell it from a worker of several, which all leave out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[KEY] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401  # a controller of xdist, untyped
    """Hear it from a worker."""
    for ring, count in getattr(node, "workeroutput", {}).get(KEY, {}).items():
        _left_out[ring] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print it, of a run that was chosen by markers."""
    if not config.option.markexpr or config.option.keyword:
        return
    for ring, count in _left_out.items():
        if count:
            terminalreporter.write_line(f"left out, for `{COMMANDS[ring]}`: {count:,} tests")
