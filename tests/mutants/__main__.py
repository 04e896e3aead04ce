# ruff: noqa: T201  # a command that prints
"""Run the mutants: each in a copy of the checkout, where the tests that it names must fail, and pass without it.

`python -m tests.mutants [NAME ...]`: names are areas (`locks`) or mutants (`locks-3`). Exit code 1 when one survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.catalogue import ROOT, Mutant, mutants

COPIES: Final = 2
SECONDS_MAX: Final = 300.0
COPIED: Final = (
    *("segmented", "workers", "bench", "tests", "docs", "requirements", ".ci"),
    *("pyproject.toml", "README.md", "Makefile", "Dockerfile", "docker-compose.yml"),
)
PYTEST: Final = ("-m", "pytest", "-q", "-x", "-n0", "--no-header", "-p", "no:cacheprovider", "-m", "not long")
FAILED: Final = 1


def ran(copy: Path, tests: tuple[str, ...]) -> int:
    """Run tests in a copy of the checkout; return pytest's exit code, or FAILED when they hang."""
    around = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [sys.executable, *PYTEST, *tests],
            cwd=copy,
            env=around,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return FAILED
    return run.returncode


def judged(copy: Path, mutant: Mutant) -> str:
    """Say what became of one mutant."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.changed(text), encoding="utf-8")
    try:
        code = ran(copy, mutant.tests)
    finally:
        file.write_text(text, encoding="utf-8")
    return {0: "SURVIVED", FAILED: "killed"}.get(code, f"UNCLEAR: pytest ended with {code}")


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


def main(names: list[str]) -> int:
    """Run the mutants that are named, or all."""
    chosen = [one for one in mutants() if not names or one.area in names or one.name in names]
    wanted = [one for one in chosen if not one.equivalent]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="segmented-mutants-") as folder:
        copies = [copied(Path(folder) / str(number)) for number in range(COPIES)]
        tests = tuple(sorted({test for one in wanted for test in one.tests}))
        if tests and ran(copies[0], tests):
            print("the tests that the mutants name do not pass without them")
            return 1

        def share(number: int) -> list[tuple[Mutant, str]]:
            found = []
            for one in wanted[number::COPIES]:
                found.append((one, judged(copies[number], one)))
                print(f"{one.name}: {found[-1][1]}", flush=True)
            return found

        with ThreadPoolExecutor(COPIES) as pool:
            outcomes = [outcome for part in pool.map(share, range(COPIES)) for outcome in part]
    left = [one for one, said in outcomes if said != "killed"]
    for one in left:
        print(f"{one.name} survived: {one.file}: {one.breaks}")
    seconds = time.monotonic() - begun
    print(
        f"{len(chosen)} mutants: {len(outcomes) - len(left)} killed, {len(left)} survived, "
        f"{len(chosen) - len(wanted)} equivalent; {seconds:.0f} s"
    )
    return 1 if left or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
