# ruff: noqa: T201  # a command that prints
"""Run a part of the tests with versions of the dependencies that users have: `make test-stacks`.

`python -m tests.support.versions [STACK ...]` makes an environment for each stack in build/stacks, by uv, and prints a
table: what passed with which versions, or the reason. A run of all stacks also installs the built wheel beside
frameworks and releases of Celery in clean environments, and writes both tables to docs/reference/versions.md. With
`--first`, which CI uses, it runs the first file of each part but the commands, all in one run. Exit code 1 if something
did not pass.

Old libraries have warnings of their own (sockets that they leave to the garbage collector, deprecations of their own
dependencies), so warnings are no errors here.
"""

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

FOLDER: Final = ROOT / "build" / "stacks"
PAGE: Final = ROOT / "docs" / "reference" / "versions.md"
MARK: Final = "<!-- Written by `make test-stacks` from here on. -->\n"
UV: Final = (sys.executable, "-m", "uv")
SECONDS: Final = 900.0
SHOWN: Final = ("redis", "celery", "kombu", "sqlalchemy", "alembic", "pydantic-settings", "rich", "typer")
NOT_DIRECT: Final = ("click", "greenlet", "psutil", "pydantic", "pydantic-core")
"""Packages that the lowest resolution leaves at their newest, or that the tests need newer."""
PYTEST: Final = (
    *("-m", "pytest", "--no-header", "-q", "-n2", "--dist=loadfile", "-p", "no:cacheprovider", "-m", "quick or real"),
    *("-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"),
    *("-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
)
CONTRACT: Final = "tests/quick/contract"
REAL: Final = "tests/real/integration"
ON_A_SERVER: Final = ("-k", "redis- or real")
"""Select the contract tests on a real server, sync and asyncio, and the tests of the folder `real`."""
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "lock": tuple(f"{CONTRACT}/locks/test_{name}.py" for name in ("lock_lease", "fair")),
    "pool": tuple(f"{CONTRACT}/pools/test_{name}.py" for name in ("reserve", "grant", "settle")),
    "once": (f"{CONTRACT}/dedup/test_dedup_claims.py", f"{REAL}/test_once_repeats.py"),
    "worker": tuple(f"{REAL}/test_{name}.py" for name in ("worker_tasks", "take_envelope", "broker_client")),
    "CLI": (f"{REAL}/test_cli_pool.py",),
}
FIRST: Final = "--first"
FIRST_FILES: Final = {"all": tuple(tests[0] for name, tests in PARTS.items() if name != "CLI")}
"""In one run of pytest, because each starts three processes."""
IMPORT: Final = "import time; a = time.process_time(); {}; print(time.process_time() - a)"
IMPORTED: Final = ("import redis", "import segmented", "from segmented import Lock, RedisStore")
IMPORTS: Final = 15
"""How often each import is measured; the shortest CPU time counts, as other work only adds to it."""
BESIDE: Final = ("celery[redis]==5.4.0", "celery[redis]==5.5.3", "celery[redis]==5.6.0", "django", "fastapi")


@dataclass(frozen=True, slots=True)
class Stack:
    """Versions of the dependencies: pinned ones, and for the others the oldest or the newest that are allowed."""

    name: str
    pins: tuple[str, ...] = ()
    is_lowest: bool = False


STACKS: Final = (
    Stack("oldest", ("kombu==5.3.4",), is_lowest=True),
    Stack(
        "celery-5.4",
        ("celery==5.4.0", "kombu==5.4.2", "redis==5.2.1", "sqlalchemy==2.0.36", "alembic==1.13.3"),
    ),
    Stack("celery-5.6", ("celery==5.6.0", "kombu==5.6.2", "redis==6.4.0")),
    Stack("newest"),
)


def run(*words: str | Path) -> str:
    """Run a program and return what it printed. Raises CalledProcessError."""
    done = subprocess.run(
        [str(word) for word in words], cwd=ROOT, check=True, capture_output=True, text=True, timeout=SECONDS
    )
    return done.stdout


def made(stack: Stack) -> Path:
    """Make the environment of a stack, and return its Python."""
    home = FOLDER / stack.name
    python = home / "bin" / "python"
    run(*UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, home)
    pins = list(stack.pins)
    if stack.is_lowest:
        pinned = {pin.partition("==")[0] for pin in pins}
        lowest = run(
            *UV, "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--extra", "all", "pyproject.toml"
        )
        for line in lowest.splitlines():
            name = line.partition("==")[0]
            if "==" in line and not line.lstrip().startswith("#") and name not in pinned | set(NOT_DIRECT):
                pins.append(line.split()[0])
    overrides = home / "overrides.txt"
    overrides.write_text("\n".join(pins) + "\n", encoding="utf-8")
    newest = ("--upgrade",) if stack.name == "newest" else ()
    run(*UV, "pip", "install", "--quiet", "--python", python, *newest, "--override", overrides, "--editable", ".[dev]")
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the versions that an environment has."""
    lines = run(*UV, "pip", "freeze", "--python", python).splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def outcome(python: Path, tests: tuple[str, ...]) -> tuple[bool, str]:
    """Run tests; return whether they passed, and the last line that pytest printed."""
    done = subprocess.run(
        [str(python), *PYTEST, *ON_A_SERVER, *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    lines = done.stdout.splitlines() or done.stderr.splitlines() or ["nothing printed"]
    if done.returncode:
        print(*lines[-40:], sep="\n", file=sys.stderr)
    return done.returncode == 0, lines[-1].strip("= ")


def import_ms(python: Path) -> str:
    """Return the CPU milliseconds of each import, in processes of its own, and how many times that of redis it is."""
    measured = [[float(run(python, "-c", IMPORT.format(one))) for one in IMPORTED] for _ in range(IMPORTS)]
    shortest = [min(column) * 1000 for column in zip(*measured, strict=True)]
    return " | ".join(f"{one:.0f} ({one / shortest[0]:.2f})" for one in shortest)


def row_of(stack: Stack, *, is_first: bool = False) -> tuple[bool, str]:
    """Run a stack, or the first file of its parts; return whether it passed, and its row of the table."""
    begun = time.monotonic()
    python = made(stack)
    found = versions(python)
    cells = [stack.name, *(found.get(name, "") for name in SHOWN)]
    is_kept = True
    for tests in (FIRST_FILES if is_first else PARTS).values():
        passed, said = outcome(python, tests)
        is_kept = is_kept and passed
        cells.append(said.partition(" in ")[0])
    cells.append(" | | " if is_first else import_ms(python))
    return is_kept, f"| {' | '.join(cells)} | {time.monotonic() - begun:.0f} |"


def beside(wheel: Path, package: str) -> tuple[bool, str]:
    """Install the wheel beside a package in a clean environment; return whether that is without conflict, and a row."""
    home = FOLDER / "beside"
    python = home / "bin" / "python"
    run(*UV, "venv", "--quiet", "--clear", "--python", sys.executable, home)
    wanted = f"segmented-locks[cli,workers,postgres] @ {wheel.as_uri()}"
    try:
        run(*UV, "pip", "install", "--quiet", "--python", python, wanted, package)
        run(*UV, "pip", "check", "--quiet", "--python", python)
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr)
        return False, f"| {package} | conflict | |"
    found = versions(python)
    shown = ", ".join(f"{name} {found[name]}" for name in (*SHOWN[:4], "django", "fastapi") if name in found)
    return True, f"| {package} | 0 conflicts | {shown} |"


def table(*names: str) -> str:
    """Return the first two lines of a table."""
    return f"| {' | '.join(names)} |\n{'| --- ' * len(names)}|"


def main(names: list[str]) -> int:
    """Run the stacks that are named, or all, and print the tables."""
    is_first = FIRST in names
    names = [name for name in names if name != FIRST]
    unknown = set(names) - {stack.name for stack in STACKS}
    if unknown:
        print(f"no stack is called {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in STACKS)}")
        return 2
    lines: list[str] = []
    failed: list[str] = []

    def tell(line: str, *, is_kept: bool = True) -> None:
        lines.append(line)
        failed.extend([] if is_kept else [line])
        print(line, flush=True)

    tell(table("stack", *SHOWN, *(FIRST_FILES if is_first else PARTS), *(f"`{one}`" for one in IMPORTED), "seconds"))
    for stack in STACKS:
        if not names or stack.name in names:
            is_kept, row = row_of(stack, is_first=is_first)
            tell(row, is_kept=is_kept)
    if names or is_first:
        return 1 if failed else 0
    shutil.rmtree(FOLDER / "wheel", ignore_errors=True)
    run(*UV, "build", "--quiet", "--wheel", "--out-dir", FOLDER / "wheel", ROOT)
    (wheel,) = (FOLDER / "wheel").glob("*.whl")
    tell("\n" + table("the wheel beside", "", "versions"))
    for package in BESIDE:
        is_kept, row = beside(wheel, package)
        tell(row, is_kept=is_kept)
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text("\n".join((above + MARK, *lines, "")), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
