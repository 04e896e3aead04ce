"""The history of a run: every call of its sale, compressed beside the results."""

from __future__ import annotations

import io
import json
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from bench.engine.folder import HISTORY_MAX
from segmented.errors import InvalidInput
from segmented.files import bounded_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.engine.record import Run

    Numbers = NDArray[np.float64]


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
        message = f"the history {file.name} cannot be read: {error}"
        raise InvalidInput(message) from error
    columns = np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(fields)).T
    return dict(zip(fields, columns, strict=True))
