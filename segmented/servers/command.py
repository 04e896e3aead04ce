"""Which command a guard runs, and how it stops it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.servers.account import Account


def quiet_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the user's language, time zone and PG* variables."""
    kept = {name: environment[name] for name in ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in environment}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "LANG": "C", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Command:
    """One child: its command, its standard input, and its account (None: the current one)."""

    argv: tuple[str, ...]
    text: str = ""
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: quiet_environment(os.environ))


@dataclass(frozen=True, slots=True)
class Stops:
    """How a kind of server is stopped: signals in order, each with its timeout in seconds."""

    signals: tuple[tuple[int, float], ...]

    @property
    def seconds(self) -> float:
        """Maximum duration of a stop."""
        return sum(seconds for _, seconds in self.signals)
