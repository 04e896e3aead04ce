# ruff: noqa: T201  # a command that prints
"""Put each mutant into a copy of the checkout and run the tests that it names, ring by ring, until one notices it.

`python -m tests.mutants [--quick] [NAME ...]`: names are areas (`pool`) or mutants (`pool-3`); with `--quick`, only the
quick ring judges, in a fraction of the time. Prints a line for each mutant with the ring that noticed it and the
seconds it took, then how many each ring noticed, and writes the lines to build/mutants.txt. Exit code 1 when one
survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.catalogue import ROOT, Mutant, mutants
from tests.support.rings import RINGS

COPIES: Final = 2
SECONDS_MAX: Final = 300.0
ALL_SECONDS_MAX: Final = 3_600.0
"""For all tests of a ring that mutants name, once, without a mutant."""
COPIED: Final = (
    *("segmented", "workers", "bench", "tests", "docs", "requirements", ".ci"),
    *("pyproject.toml", "README.md", "Makefile", "Dockerfile", "docker-compose.yml"),
)
PYTEST: Final = ("-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider")
ONE: Final = ("-n0",)
ALL: Final = (f"-n{COPIES}", "--dist=loadfile")
PASSED, FAILED, NONE_CHOSEN = 0, 1, 5
"""Exit codes of pytest."""
SURVIVED: Final = "SURVIVED"
TABLE: Final = ROOT / "build" / "mutants.txt"


def say(line: str) -> None:
    """Print a line, and add it to the table."""
    print(line, flush=True)
    with TABLE.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def ran(
    copy: Path, tests: tuple[str, ...], ring: str, *, how: tuple[str, ...] = ONE, seconds: float = SECONDS_MAX
) -> int:
    """Run the tests of a ring in a copy of the checkout; return pytest's exit code, or FAILED when they hang."""
    around = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [sys.executable, *PYTEST, *how, "-m", ring, *tests],
            cwd=copy,
            env=around,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return FAILED
    return run.returncode


def judged(copy: Path, mutant: Mutant, rings: Sequence[str]) -> str:
    """Return the innermost ring that notices a mutant, or what became of it."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.changed(text), encoding="utf-8")
    try:
        for ring in rings:
            code = ran(copy, mutant.tests, ring)
            if code == FAILED:
                return ring
            if code not in {PASSED, NONE_CHOSEN}:
                return f"UNCLEAR: pytest ended with {code}"
    finally:
        file.write_text(text, encoding="utf-8")
    return SURVIVED


def copied(folder: Path) -> Path:
    """Copy what tests need of the checkout."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def main(names: list[str], rings: Sequence[str]) -> int:
    """Run the mutants that are named, or all; `rings` judge them in this order."""
    chosen = [one for one in mutants() if not names or one.area in names or one.name in names]
    wanted = [one for one in chosen if not one.equivalent]
    begun = time.monotonic()
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="segmented-mutants-") as folder:
        copies = [copied(Path(folder) / str(number)) for number in range(COPIES)]
        tests = tuple(sorted({test for one in wanted for test in one.tests}))
        for ring in rings if tests else ():
            if ran(copies[0], tests, ring, how=ALL, seconds=ALL_SECONDS_MAX) not in {PASSED, NONE_CHOSEN}:
                print(f"the {ring} tests that the mutants name do not pass without them")
                return 1

        def share(number: int) -> list[tuple[Mutant, str]]:
            found = []
            for one in wanted[number::COPIES]:
                started = time.monotonic()
                ring = judged(copies[number], one, rings)
                found.append((one, ring))
                say(f"{one.name:16} {ring:8} {time.monotonic() - started:6.1f} s  {one.breaks}")
            return found

        with ThreadPoolExecutor(COPIES) as pool:
            outcomes = [outcome for part in pool.map(share, range(COPIES)) for outcome in part]
    left = [(one, ring) for one, ring in outcomes if ring not in rings]
    for one, ring in left:
        say(f"{one.name}: {ring}: {one.file}: {one.breaks}")
    for ring in rings:
        count = sum(by == ring for _, by in outcomes)
        say(f"noticed by {ring}: {count} of {len(outcomes)} ({100 * count / max(1, len(outcomes)):.1f} %)")
    say(f"survived: {len(left)}; equivalent: {len(chosen) - len(wanted)}; {time.monotonic() - begun:.0f} s")
    return 1 if left or not chosen else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main([name for name in given if name != "--quick"], ("quick",) if "--quick" in given else tuple(RINGS)))
