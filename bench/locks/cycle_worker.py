"""Runs one subject in its own process: reads the number of cycles, prints the seconds they took.

Run as a file, with the interpreter of the subject's environment: `cycle_worker.py SUBJECT URL`.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Print `ready`, then answer each line of standard input until it ends."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from bench.locks.cycles import CYCLES  # noqa: PLC0415  # found through the path set above

    run = CYCLES[sys.argv[1]](sys.argv[2])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(f"{run(int(line)):.9f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
