"""The committed counts, and their comparison with new ones. A better count is a difference too, to be committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.counts.tally import GATED, Tally
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

BASELINE: Final = Path(__file__).with_name("baseline.json")
SCHEMA: Final = "segmented-counts/1"
REWRITE: Final = "write the baseline with `python -m bench.counts --write`, and commit it"


def read_baseline(file: Path) -> dict[str, Tally]:
    """Read the counts. Raises InvalidInput that names the error in the file."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            message = f"{file} is of schema {found['schema']!r}, and this reads {SCHEMA!r}"
            raise InvalidInput(message)
        return {name: Tally.from_json(one) for name, one in found["counts"].items()}
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise InvalidInput(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        message = f"{file} is no baseline of counts: {error!r}"
        raise InvalidInput(message) from error


def write_baseline(file: Path, counts: Mapping[str, Tally]) -> None:
    """Write the counts, without fields that differ from run to run."""
    whole = {"schema": SCHEMA, "counts": {name: tally.as_json() for name, tally in counts.items()}}
    file.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def differences(counts: Mapping[str, Tally], baseline: Mapping[str, Tally]) -> list[str]:
    """Return the differences, one sentence each, increases first."""
    worse: list[str] = []
    better: list[str] = []
    for name, tally in counts.items():
        before = baseline.get(name)
        if before is None:
            better.append(f"{name} has no baseline: {REWRITE}")
            continue
        if before.orders != tally.orders:
            better.append(f"{name} was counted over {before.orders} orders, and now over {tally.orders}: {REWRITE}")
            continue
        for field in GATED:
            old, new = getattr(before, field), getattr(tally, field)
            said = f"{name}: {field.replace('_', ' ')} an order {before.each(field)} -> {tally.each(field)}"
            if new > old:
                worse.append(f"{said}: it went up")
            elif new < old:
                better.append(f"{said}: it went down; {REWRITE}")
    gone = [f"{name} is in the baseline and was not counted: {REWRITE}" for name in baseline if name not in counts]
    return worse + better + gone
