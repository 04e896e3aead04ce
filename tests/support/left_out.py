"""What a run leaves out, said at its end, with the command that runs it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.rings import ring_of

if TYPE_CHECKING:
    from collections.abc import Sequence


COMMANDS: Final = {"install": "make test-install", "long": "make test-long"}
"""Marker -> what runs its tests; the others are `make test-full`'s."""
KEY: Final = "left_out"

_left_out: Counter[tuple[str, str]] = Counter()
"""Command and ring -> tests."""


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count."""
    for item in items:
        marker = next((marker for marker in COMMANDS if item.get_closest_marker(marker)), None)
        ring = ring_of(item.path)
        _left_out[COMMANDS[marker] if marker else "make test-full", ring] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell it from a worker of several, which all leave out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[KEY] = list(_left_out.items())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401  # a controller of xdist, untyped
    """Hear it from a worker."""
    for (command, ring), count in getattr(node, "workeroutput", {}).get(KEY, []):
        _left_out[command, ring] = count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print it, of a run that was chosen by markers."""
    if not config.option.markexpr or config.option.keyword:
        return
    for command in sorted({command for command, _ in _left_out}):
        rings = {ring: count for (of, ring), count in sorted(_left_out.items()) if of == command}
        counts = ", ".join(f"{ring} {count:,}" for ring, count in rings.items())
        terminalreporter.write_line(f"left out, for `{command}`: {sum(rings.values()):,} tests ({counts})")
