"""How the processes of `once_app` are set up, and the steps at which they note what they do, wait, or die."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Fail = Literal["", "after_claim", "after_publish", "after_retry_publish", "in_body", "after_finish", "before_ack"]
VARIABLE: Final = "ONCE_APP"
ENOUGH: Final = ".enough"
LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Setup:
    """Where everything is, and what is to go wrong."""

    broker: str = "memory://"
    backend: str = "cache+memory://"
    records: str = ""
    log: str = os.devnull
    visibility: float = 3600.0
    fail: Fail = ""
    clock_ahead: float = 0.0
    """Seconds by which the clock is wrong by which the broker's client counts."""
    down_seconds: float = 0.3
    """After which a message comes back that found the records out of reach."""
    lease: float = 0.0
    """Seconds for which a dead process keeps a run, of whatever task; 0: as the task's rule says."""
    conf: dict[str, Any] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def here(cls) -> Setup:
        """Return that of this process."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))

    def fail_at(self, point: Fail) -> None:
        """End this process and its group, at once, if this is its point."""
        if self.fail == point:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def note(self, *words: object) -> None:
        """Write a line that a killed process has written, too, outside of any server under test."""
        line = " ".join(str(word).replace(" ", "") for word in words) + "\n"
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, line.encode())
        os.close(log)

    def take(self, seconds: float) -> None:
        """Take so long; with a negative number, until the test says that it is enough."""
        time.sleep(max(0.0, seconds))
        while seconds < 0 and not Path(self.log + ENOUGH).exists():
            time.sleep(LOOK_SECONDS)
