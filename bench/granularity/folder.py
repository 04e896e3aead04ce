"""The folder of a session's results: every finished run is in it at once, and a session that was stopped goes on."""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any, Final, Self

from bench.granularity.record import EndLine, Run, SessionLine, as_line, read_results
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

RESULTS: Final = "results.jsonl"
HISTORIES: Final = "histories"
CALIBRATIONS: Final = "calibrations.json"
ENVIRONMENT: Final = "environment.json"
PLAN: Final = "plan.toml"


class ResultsFolder:
    """One session's files. At most one process at a time has it."""

    def __init__(self, path: Path) -> None:
        """Take the folder, and make it if there is none. Raises InvalidInput for a place that cannot be used."""
        self.path = path
        self.rates: dict[str, float] = {}
        """Orders a second by the calibrations, by cell: a session that goes on offers the same loads."""
        try:
            (path / HISTORIES).mkdir(parents=True, exist_ok=True)
            self._file = (path / RESULTS).open("a+b")
        except OSError as error:
            message = f"--report {path} cannot be used: {error.strerror}"
            raise InvalidInput(message) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            message = f"--report {path} is in use by another session"
            raise InvalidInput(message) from error

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""
        self._file.close()

    @property
    def results(self) -> Path:
        """Where the runs are."""
        return self.path / RESULTS

    def is_new(self) -> bool:
        """Has no session written here yet? What a kill cut off in the middle of a line is removed."""
        self._file.seek(0)
        whole, newline, _ = self._file.read().rpartition(b"\n")
        self._file.truncate(len(whole) + len(newline))
        return not whole.strip()

    def begin(self, session: SessionLine, plan_text: str) -> None:
        """Write what comes first."""
        (self.path / PLAN).write_text(plan_text, encoding="utf-8")
        environment = json.dumps(session.environment, indent=2)
        (self.path / ENVIRONMENT).write_text(environment + "\n", encoding="utf-8")
        self.append(session)

    def go_on(self, session: SessionLine) -> dict[int, Run]:
        """Return the runs that are finished, by number. Raises InvalidInput if they are of another session."""
        found = read_results(self.results)
        for what, before, now in _compared(found.session, session):
            if before != now:
                message = (
                    f"--report {self.path} has runs with another {what} ({_short(before)}, this is {_short(now)}):"
                    " results of both in one file would be comparisons of nothing; name another folder"
                )
                raise InvalidInput(message)
        try:
            self.rates = json.loads((self.path / CALIBRATIONS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.rates = {}
        except (OSError, ValueError) as error:
            message = f"{self.path / CALIBRATIONS} cannot be read: {error}"
            raise InvalidInput(message) from error
        return {run.run: run for run in found.runs}

    def append(self, line: SessionLine | Run | EndLine) -> None:
        """Add a line, and have it on the disk before anything else is done."""
        self._file.write(as_line(line).encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def keep_rate(self, cell_id: str, rate: float) -> None:
        """Keep a calibration."""
        self.rates[cell_id] = rate
        new = self.path / f"{CALIBRATIONS}.new"
        new.write_text(json.dumps(self.rates, indent=2) + "\n", encoding="utf-8")
        new.replace(self.path / CALIBRATIONS)

    def history(self, number: int) -> str:
        """Return where the calls of a run go."""
        return str((self.path / HISTORIES / f"{number:04}.jsonl.zst").absolute())


def _compared(before: SessionLine, now: SessionLine) -> list[tuple[str, Any, Any]]:
    old, new = before.environment, now.environment
    return [
        ("plan", before.plan_sha256, now.plan_sha256),
        ("profile", before.is_quick, now.is_quick),
        ("choice of sweeps", before.left_out, now.left_out),
        ("commit of the code", old["code"]["commit"], new["code"]["commit"]),
        ("Python", old["code"]["python"], new["code"]["python"]),
        ("processor", old["machine"]["cpu_model"], new["machine"]["cpu_model"]),
        ("number of cores", old["machine"]["cores"], new["machine"]["cores"]),
        ("server", old["servers"]["redis"]["version"], new["servers"]["redis"]["version"]),
        ("kind of server", old["servers"]["redis"]["embedded"], new["servers"]["redis"]["embedded"]),
    ]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."  # noqa: PLR2004  # a commit is shown whole
