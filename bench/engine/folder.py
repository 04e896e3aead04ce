"""The results folder of a session: each finished run is saved at once, and a stopped session can continue.

The history of a run has every call of its sale, compressed beside the results.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import zstandard

from bench.engine.record import SCHEMA, EndLine, Run, SessionLine, as_line, read_results
from segmented.errors import InvalidInput
from segmented.files import bounded_lines, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.engine.record import Run

    Numbers = NDArray[np.float64]

RESULTS: Final = "results.jsonl"
HISTORIES: Final = "histories"
HISTORY_MAX: Final = 256
"""Maximum MiB of a history, unpacked, unless the caller allows more."""
CALIBRATIONS: Final = "calibrations.json"
ENVIRONMENT: Final = "environment.json"
PLAN: Final = "plan.toml"
BEGINS: Final = f'{{"schema":"{SCHEMA}","kind":"session"'.encode()
"""How every results file begins."""


class ResultsFolder:
    """One session's files. Only one process at a time can hold the folder."""

    def __init__(self, path: Path) -> None:
        """Lock the folder, and create it if it does not exist.

        Raises InvalidInput, and changes nothing, if the folder cannot be used or has other files.
        """
        self.path = path
        self.rates: dict[str, float] = {}
        """Calibrated orders per second by cell: a continued session offers the same loads."""
        histories = path / HISTORIES
        files = [path / name for name in (RESULTS, PLAN, ENVIRONMENT)]
        try:
            refuse_links(path, f"--report {path}")
            _refuse_others(path)
            self._made = [one for one in (*files, histories, *histories.parents) if not one.exists()]
            histories.mkdir(parents=True, exist_ok=True)
            self._file = (path / RESULTS).open("a+b")
            links = os.fstat(self._file.fileno()).st_nlink
        except OSError as error:
            raise InvalidInput(f"--report {path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InvalidInput(f"--report {path} is in use by another session") from error
        if links != 1:
            self._file.close()
            raise InvalidInput(
                f"--report {path}: {RESULTS} has a second name elsewhere, a hard link: copy it, or name a new folder"
            )

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock the folder. If no session began, remove what was created."""
        if not os.fstat(self._file.fileno()).st_size:
            for one in self._made:
                with suppress(OSError):  # another program may have added files
                    one.rmdir() if one.is_dir() else one.unlink()
        self._file.close()

    @property
    def results(self) -> Path:
        """Path of the results file."""
        return self.path / RESULTS

    def is_new(self) -> bool:
        """Return whether no session has written here yet. Removes a last line that a kill truncated."""
        self._file.seek(0)
        whole, newline, _ = self._file.read().rpartition(b"\n")
        self._file.truncate(len(whole) + len(newline))
        return not whole.strip()

    def begin(self, session: SessionLine, plan_text: str) -> None:
        """Write the session line and the plan. Like all writers here, raises InvalidInput if that fails."""
        write_whole(self.path / PLAN, plan_text)
        write_whole(self.path / ENVIRONMENT, json.dumps(session.environment, indent=2) + "\n")
        self.append(session)

    def go_on(self, session: SessionLine) -> dict[int, Run]:
        """Return the finished runs by number. Raises InvalidInput if they belong to another session."""
        found = read_results(self.results)
        for what, before, now in _compared(found.session, session):
            if before != now:
                raise InvalidInput(
                    f"--report {self.path} has runs with another {what} ({_short(before)}, this is {_short(now)}):"
                    " results of both in one file would be comparisons of nothing; name another folder"
                )
        self.rates = self._calibrated(is_needed=any(_is_by_calibration(run) for run in found.runs))
        return {run.run: run for run in found.runs}

    def _calibrated(self, *, is_needed: bool) -> dict[str, float]:
        """Read the calibrations: without them, later runs would get other loads than earlier ones."""
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
            raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{file} is not a calibration file: {error}") from error

    def append(self, line: SessionLine | Run | EndLine) -> None:
        """Append a line, and sync it to disk."""
        try:
            self._file.write(as_line(line).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InvalidInput(f"{self.results} cannot be written: {error.strerror}") from error

    def keep_rate(self, cell_id: str, rate: float) -> None:
        """Save a calibration."""
        self.rates[cell_id] = rate
        write_whole(self.path / CALIBRATIONS, json.dumps(self.rates, indent=2) + "\n")

    def history(self, number: int) -> str:
        """Return the history file of a run."""
        return str((self.path / HISTORIES / f"{number:04}.jsonl.zst").absolute())


def refuse_links(path: Path, named: str) -> None:
    """Refuse a folder with links, through which files elsewhere would be written, or with pipes and the like.

    Raises OSError if it is unreadable.
    """
    for one in (path, *path.rglob("*")):
        if one.is_symlink():
            raise InvalidInput(f"{named} has a link, {one}: remove it, since results are not written through links")
        if one.exists() and not (one.is_file() or one.is_dir()):
            raise InvalidInput(f"{named} has {one}, which is neither a plain file nor a folder: remove it")


def _refuse_others(path: Path) -> None:
    """Refuse a folder with other files than a session's. Raises OSError if it cannot be read."""
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
        raise InvalidInput(f"--report {path}: its {RESULTS} is not one of {SCHEMA}: name a new folder, or an empty one")


CONDITIONS: Final = (
    *(("commit of the code", "code.commit"), ("Python", "code.python"), ("set of packages", "code.versions")),
    *(("strategy of one's own", "code.own_strategies"), ("kernel", "machine.kernel")),
    *(("processor", "machine.cpu_model"), ("number of cores", "machine.cores"), ("server", "servers.redis.version")),
    *(("kind of server", "servers.redis.embedded"), ("order database", "servers.database.version")),
    *(("kind of order database", "servers.database.embedded"), ("placement", "placement")),
)
"""Conditions that must be equal for a session to continue, each with its path in the environment."""


def _compared(before: SessionLine, now: SessionLine) -> list[tuple[str, Any, Any]]:
    return [
        ("plan", before.plan_sha256, now.plan_sha256),
        ("profile", before.is_quick, now.is_quick),
        ("choice of sweeps", before.left_out, now.left_out),
        *((what, before.condition(place), now.condition(place)) for what, place in CONDITIONS),
    ]


def _is_by_calibration(run: Run) -> bool:
    """Return whether a calibration decided this run's stock or load."""
    is_decided = run.offered_percent is not None or (run.cell.loop == "closed" and run.cell.stock is None)
    return is_decided and run.window_s > 0  # a lost run may have been lost in its calibration


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."  # noqa: PLR2004  # a commit is shown in full


def calls_of(
    folder: Path, run: Run, fields: Sequence[str], *, size_max: int = HISTORY_MAX
) -> dict[str, Numbers] | None:
    """Return fields of all calls of a run, in the order of their answers, NaN for null; None if no history is there.

    Raises InvalidInput for a history that cannot be read, or that has more than `size_max` MiB unpacked.
    """
    if run.history is None or not (folder / run.history).is_file():
        return None
    file, numbers = folder / run.history, array("d")
    try:
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as plain:
            for _, line in bounded_lines(io.BufferedReader(plain), file, size_max=size_max, of="calls"):
                found: dict[str, Any] = json.loads(line)
                numbers.extend([np.nan if found[name] is None else float(found[name]) for name in fields])
    except (OSError, zstandard.ZstdError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(f"the history {file.name} cannot be read: {error}") from error
    columns = np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(fields)).T
    return dict(zip(fields, columns, strict=True))
