# ruff: noqa: T201  # a command that prints
"""Run the quick ring under load: no test of it may notice that others need the machine.

`python -m tests.support.loaded [ROUNDS]`: each round runs it with every core kept busy by others, and then on one
core. Exit code 1 at the first failure.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

ROUNDS: Final = 3
PYTEST: Final = (
    "-m",
    "pytest",
    "--no-header",
    "-q",
    "--numprocesses=auto",
    "--dist=loadfile",
    "-m",
    "quick",
    "tests/quick",
)
BURN: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))"
"""Keeps one core busy until its parent ends it, or has ended."""


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy."""
    burning = subprocess.Popen([sys.executable, "-c", BURN, str(os.getpid())])
    try:
        yield
    finally:
        burning.kill()
        burning.wait()


def ran(cores: set[int], others: int) -> int:
    """Run the ring on some cores, beside others that each keep one busy; return pytest's exit code."""
    with ExitStack() as load:
        for _ in range(others):
            load.enter_context(busy_core())
        os.sched_setaffinity(0, cores)  # the child has it from here
        return subprocess.run([sys.executable, *PYTEST], check=False).returncode


def main(rounds: int) -> int:
    """Run the rounds."""
    cores = os.sched_getaffinity(0)
    for number in range(1, rounds + 1):
        for name, taken, others in (("cores busy", cores, len(cores)), ("one core", {min(cores)}, 0)):
            begun = time.monotonic()
            code = ran(taken, others)
            print(f"round {number}, {name}: exit code {code} after {time.monotonic() - begun:.0f} s", flush=True)
            if code:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
