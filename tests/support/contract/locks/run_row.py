"""One row on one lock, in a process of its own: a peer that hangs or leaves threads behind spoils no other row.

- `python -m tests.support.contract.locks.run_row MODULE:MAKER[:NAME] ROW URL...` prints the result as a line of
  JSON and leaves without waiting for anybody. Its parent stops it when it takes too long.
- `python -m tests.support.contract.locks.run_row` prints the rows, and this library's own contenders on Redis.
"""

import importlib
import json
import logging
import os
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from tests.conformance.locks.contender import Contender, NotOffered
from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.rows import Row, RowFailed, all_rows

OURS: Final = "tests.support.contract.locks.contenders.ours"


def result_of(row: Row, contender: Contender, urls: Sequence[str], *, is_thorough: bool) -> dict[str, Any]:
    """Run a row and return its outcome: passed, failed or not applicable, the last two with the reason."""
    try:
        with Lab(contender, urls, is_thorough=is_thorough) as lab:
            lab.require(*row.needs)
            row.case(lab)
    except NotOffered as why:
        return {"outcome": "not applicable", "why": str(why)}
    except RowFailed as failure:
        return {"outcome": "failed", "why": str(failure)}
    except Exception as error:  # noqa: BLE001  # whatever the library raises where nothing should be raised
        traceback.print_exc()
        return {"outcome": "failed", "why": f"it raised {told(error)}"}
    return {"outcome": "passed", "why": ""}


def maker(where: str) -> Contender:
    """Make the contender that `MODULE:MAKER[:NAME]` names."""
    module, name, *rest = where.split(":")
    made: Contender = getattr(importlib.import_module(module), name)(*rest)
    return made


def run(where: str, row_id: str, urls: Sequence[str]) -> dict[str, Any]:
    """Run a row, and say what on."""
    contender = maker(where)
    (row,) = [found for found in all_rows() if found.row_id == row_id]
    began = time.monotonic()
    result = result_of(row, contender, urls, is_thorough=True)
    return {
        "title": contender.title,
        "colour": "asyncio" if contender.is_async else "threads",
        "versions": {"python": platform.python_version()} | {name: version(name) for name in contender.packages},
        **result,
        "seconds": round(time.monotonic() - began, 2),
    }


def inventory() -> dict[str, Any]:
    """Return what there is to run."""
    ours = importlib.import_module(OURS)
    return {
        "rows": [{"id": row.row_id, "must_hold": row.must_hold} for row in all_rows()],
        "ours": [f"{OURS}:make:{name}" for name in ours.CONTENDERS if "-redis-" in name],
    }


def main(arguments: Sequence[str]) -> None:
    """Run and print."""
    logging.disable(logging.CRITICAL)
    if arguments:
        where, row_id, *urls = arguments
        answer = run(where, row_id, urls)
    else:
        answer = inventory()
    print(json.dumps(answer), flush=True)  # noqa: T201  # the parent reads it
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
