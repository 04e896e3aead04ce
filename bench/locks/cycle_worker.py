"""One subject in a process of its own: reads how many cycles to run, prints how many seconds they took.

Run as a file, with the interpreter of the subject's environment: `cycle_worker.py SUBJECT URL`.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Say `ready`, then answer each line of standard input until it ends."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from bench.locks.cycles import CYCLES  # noqa: PLC0415  # found by the line above

    run = CYCLES[sys.argv[1]](sys.argv[2])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(f"{run(int(line)):.9f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
