"""A process that makes calls of one `Dedup` whose records are in SQL, and notes each run in a file.

Arguments: the database, the file, the lease in seconds, the keys; the key `hang` never ends.
"""

import sys
import threading
from pathlib import Path

import sqlalchemy

from segmented.dedup import Dedup, SqlRecords


def main() -> None:
    url, log, ttl, *keys = sys.argv[1:]
    dedup = Dedup(SqlRecords(sqlalchemy.create_engine(url)), "calls", ttl=float(ttl))
    for key in keys:

        def note(key: str = key) -> str:
            with Path(log).open("a", encoding="utf-8") as runs:
                runs.write(f"{key}\n")
            if key == "hang":
                threading.Event().wait()
            return f"done {key}"

        sys.stdout.write(f"{dedup.call(key, note, timeout=100)}\n")


if __name__ == "__main__":
    main()
