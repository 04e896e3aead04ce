"""Reads the history of a run: every call, compressed, beside the results."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import zstandard

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.granularity.record import Run

FIELDS = ("asked", "done", "sold", "sold_out", "failed")


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls as columns, in the order of their answers. Seconds since the first order."""

    asked: NDArray[np.float64]
    done: NDArray[np.float64]
    sold: NDArray[np.float64]
    sold_out: NDArray[np.float64]
    failed: NDArray[np.float64]


def calls_of(folder: Path, run: Run) -> Calls | None:
    """Return the calls of a run, or None if no history was kept. Raises InvalidInput for an unreadable one."""
    if run.history is None or not (folder / run.history).is_file():
        return None
    file = folder / run.history
    rows = []
    try:
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as plain:
            for line in io.TextIOWrapper(plain, encoding="utf-8"):
                found = json.loads(line)
                rows.append([found[name] for name in FIELDS])
    except (OSError, zstandard.ZstdError, ValueError, KeyError) as error:
        message = f"the history {file} cannot be read: {error}"
        raise InvalidInput(message) from error
    columns = np.asarray(rows, dtype=np.float64).reshape(-1, len(FIELDS)).T
    return Calls(*columns)
