"""What a guard is asked to run, and how it is to end it."""

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
    """One child: what to run, with what on its standard input, and as whom (None: as ourselves)."""

    argv: tuple[str, ...]
    text: str = ""
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: quiet_environment(os.environ))


@dataclass(frozen=True, slots=True)
class Stops:
    """How a kind of server is stopped: signals in order, each with the seconds it is given."""

    signals: tuple[tuple[int, float], ...]

    @property
    def seconds(self) -> float:
        """The longest that stopping may take."""
        return sum(seconds for _, seconds in self.signals)
