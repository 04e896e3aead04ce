"""The folder of a session's results: every finished run is in it at once, and a session that was stopped goes on."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from bench.granularity.record import SCHEMA, EndLine, Run, SessionLine, as_line, read_results
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

RESULTS: Final = "results.jsonl"
HISTORIES: Final = "histories"
CALIBRATIONS: Final = "calibrations.json"
ENVIRONMENT: Final = "environment.json"
PLAN: Final = "plan.toml"
BEGINS: Final = f'{{"schema":"{SCHEMA}","kind":"session"'.encode()
"""How every file of a session begins."""


class ResultsFolder:
    """One session's files. At most one process at a time has it."""

    def __init__(self, path: Path) -> None:
        """Take the folder, and make it if there is none.

        Raises InvalidInput for a place that cannot be used, and for a folder of somebody else's, where nothing changes.
        """
        self.path = path
        self.rates: dict[str, float] = {}
        """Orders a second by the calibrations, by cell: a session that goes on offers the same loads."""
        histories = path / HISTORIES
        files = [path / name for name in (RESULTS, PLAN, ENVIRONMENT)]
        try:
            _refuse_others(path)
            self._made = [one for one in (*files, histories, *histories.parents) if not one.exists()]
            histories.mkdir(parents=True, exist_ok=True)
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
        """Let go of it. Where no session began, what was made for it is removed."""
        if not os.fstat(self._file.fileno()).st_size:
            for one in self._made:
                with suppress(OSError):  # as where somebody has put something in
                    one.rmdir() if one.is_dir() else one.unlink()
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
        """Write what comes first. Raises InvalidInput where that is impossible, as all that writes here."""
        self._write(PLAN, plan_text)
        self._write(ENVIRONMENT, json.dumps(session.environment, indent=2) + "\n")
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
        self.rates = self._calibrated(is_needed=any(_is_by_calibration(run) for run in found.runs))
        return {run.run: run for run in found.runs}

    def _calibrated(self, *, is_needed: bool) -> dict[str, float]:
        """Read the calibrations: without those of the runs before, others would be offered other loads."""
        file = self.path / CALIBRATIONS
        try:
            rates = json.loads(file.read_text(encoding="utf-8"))
            return {str(cell_id): float(rate) for cell_id, rate in rates.items()}
        except FileNotFoundError:
            if not is_needed:
                return {}
            message = f"{file} is missing, and the runs beside it were measured by it: name another folder"
            raise InvalidInput(message) from None
        except OSError as error:
            message = f"{file} cannot be read: {error.strerror}"
            raise InvalidInput(message) from error
        except (ValueError, TypeError, AttributeError) as error:
            message = f"{file} is no file of calibrations: {error}"
            raise InvalidInput(message) from error

    def append(self, line: SessionLine | Run | EndLine) -> None:
        """Add a line, and have it on the disk before anything else is done."""
        try:
            self._file.write(as_line(line).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(RESULTS, error) from error

    def keep_rate(self, cell_id: str, rate: float) -> None:
        """Keep a calibration."""
        self.rates[cell_id] = rate
        new = f"{CALIBRATIONS}.new"
        self._write(new, json.dumps(self.rates, indent=2) + "\n")
        (self.path / new).replace(self.path / CALIBRATIONS)

    def history(self, number: int) -> str:
        """Return where the calls of a run go."""
        return str((self.path / HISTORIES / f"{number:04}.jsonl.zst").absolute())

    def _write(self, name: str, text: str) -> None:
        try:
            (self.path / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise self._unwritten(name, error) from error

    def _unwritten(self, name: str, error: OSError) -> InvalidInput:
        return InvalidInput(f"{self.path / name} cannot be written: {error.strerror}")


def _refuse_others(path: Path) -> None:
    """Refuse a folder with anything in it but a session. Raises OSError for what cannot be read."""
    if not path.is_dir():
        return
    try:
        with (path / RESULTS).open("rb") as file:
            first = file.read(len(BEGINS))
    except FileNotFoundError:
        if any(one.name != HISTORIES for one in path.iterdir()):
            message = f"--report {path} has files, and no {RESULTS} among them: name a new folder, or an empty one"
            raise InvalidInput(message) from None
        return
    if not BEGINS.startswith(first):
        message = f"--report {path}: its {RESULTS} is not one of {SCHEMA}: name a new folder, or an empty one"
        raise InvalidInput(message)


CONDITIONS: Final = (
    ("commit of the code", "code.commit"),
    ("Python", "code.python"),
    ("set of packages", "code.versions"),
    ("kernel", "machine.kernel"),
    ("processor", "machine.cpu_model"),
    ("number of cores", "machine.cores"),
    ("server", "servers.redis.version"),
    ("kind of server", "servers.redis.embedded"),
    ("order database", "servers.database.version"),
    ("kind of order database", "servers.database.embedded"),
    ("placement", "placement"),
)
"""What must be the same for a session to go on, and where its environment says it."""


def _compared(before: SessionLine, now: SessionLine) -> list[tuple[str, Any, Any]]:
    old, new = before.environment, now.environment
    return [
        ("plan", before.plan_sha256, now.plan_sha256),
        ("profile", before.is_quick, now.is_quick),
        ("choice of sweeps", before.left_out, now.left_out),
        *((what, _condition(old, place), _condition(new, place)) for what, place in CONDITIONS),
    ]


def _condition(environment: dict[str, Any], place: str) -> object:
    """Return what an environment says there; None where it says nothing."""
    found: Any = environment
    for step in place.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _is_by_calibration(run: Run) -> bool:
    """Did a calibration decide what this run sold or was offered?"""
    is_decided = run.offered_percent is not None or (run.cell.loop == "closed" and run.cell.stock is None)
    return is_decided and run.window_s > 0  # a run that was lost may have been lost in its calibration


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."  # noqa: PLR2004  # a commit is shown whole
