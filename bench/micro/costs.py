"""CPU cost of importing the library, its pytest plugin and its command: `python -m bench.micro.costs [ROUNDS]`.

Each program runs in a fresh interpreter, and the programs alternate, so that a slow moment affects all of them. The
figures are medians of user plus system seconds. Compare ratios of one run, not seconds of two machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from segmented.errors import InvalidInput

ROUNDS: Final = 7
ROUNDS_MAX: Final = 1_000
PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "python": ("-c", "pass"),
    "import redis": ("-c", "import redis"),
    "import segmented": ("-c", "import segmented"),
    "from segmented import Lock": ("-c", "from segmented import Lock"),
    "from segmented import Lock, RedisStore": ("-c", "from segmented import Lock, RedisStore"),
    "from segmented import Pool, RedisStore": ("-c", "from segmented import Pool, RedisStore"),
    "segmented --version": ("-m", "segmented", "--version"),
    "pytest without the plugin": (*PYTEST, "-p", "no:segmented"),
    "pytest with the plugin": PYTEST,
}


def cpu_seconds(options: tuple[str, ...], folder: Path) -> float:
    """Return the user plus system seconds of a fresh interpreter with these options."""
    with subprocess.Popen(  # noqa: S603  # this interpreter, with programs of this module
        [sys.executable, *options], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        message = f"python {' '.join(options)} ended with exit code {process.returncode}"
        raise InvalidInput(message)
    return used.ru_utime + used.ru_stime


def measure(rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each program."""
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one.py").write_text("def test_one():\n    assert True\n", encoding="utf-8")
        for options in PROGRAMS.values():
            cpu_seconds(options, folder)  # warm up: compile, and read from disk once
        for _ in range(rounds):
            for program, options in PROGRAMS.items():
                taken[program].append(cpu_seconds(options, folder))
    return {program: median(seconds) for program, seconds in taken.items()}


def lines(found: dict[str, float]) -> list[str]:
    """Return the figures as text: each program's seconds, and its ratio to the baseline."""
    start = found["python"]
    driver = found["import redis"] - start
    shown = [f"{program:40} {seconds:6.3f} s" for program, seconds in found.items()]
    compared = [program for program in PROGRAMS if program.startswith(("import segmented", "from segmented"))]
    shown += [f"{program} / import redis: {(found[program] - start) / driver:.2f}" for program in compared]
    plugin = found["pytest with the plugin"] - found["pytest without the plugin"]
    return [*shown, f"the pytest plugin adds {plugin:.3f} s to a run that does not use it"]


def main(words: list[str]) -> None:
    """Measure and print. Raises InvalidInput for an invalid number of rounds."""
    said = words[0] if words else str(ROUNDS)
    if not said.isdecimal() or not 1 <= int(said) <= ROUNDS_MAX:
        message = f"ROUNDS is {said!r}: it should be a whole number from 1 to {ROUNDS_MAX:,}"
        raise InvalidInput(message)
    sys.stdout.write("\n".join([*lines(measure(int(said))), ""]))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InvalidInput as error:
        sys.stderr.write(f"bench.micro.costs: {error}\n")
        sys.exit(2)
