# ruff: noqa: T201  # a command that prints
"""Run a part of the tests with versions of the dependencies that users have: `make test-stacks`.

`python -m tests.support.versions [STACK ...]` makes an environment for each stack in build/stacks, by uv, and prints a
table: what passed with which versions, or how many tests failed. Exit code 1 if something did not pass.

Old libraries have warnings of their own (sockets that they leave to the garbage collector, deprecations of their own
dependencies), so warnings are no errors here.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = ROOT / "build" / "stacks"
UV: Final = (sys.executable, "-m", "uv")
SECONDS: Final = 900.0
SHOWN: Final = ("redis", "celery", "kombu", "sqlalchemy", "alembic", "pydantic-settings", "rich", "typer")
NOT_DIRECT: Final = ("click", "greenlet", "psutil", "pydantic", "pydantic-core")
"""Packages that the lowest resolution leaves at their newest, or that the tests need newer."""
PYTEST: Final = (
    *("-m", "pytest", "--no-header", "-q", "-n2", "--dist=loadfile", "-p", "no:cacheprovider"),
    *("-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"),
    *("-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
)
LOCKS: Final = "tests/quick/contract/locks"
DEDUP: Final = "tests/quick/contract/dedup"
REAL: Final = "tests/real/integration"
ALL: Final = ("-m", "quick or real")
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "lock": (f"{LOCKS}/test_lock_lease.py", f"{LOCKS}/test_fair.py", f"{LOCKS}/test_line_of_processes.py", *ALL),
    "pool": ("tests/quick/contract/pools", "-m", "quick"),
    "once": (f"{DEDUP}/test_dedup_claims.py", f"{DEDUP}/test_dedup_runs.py", f"{REAL}/test_once_repeats.py", *ALL),
    "gate": ("tests/quick/orders", "-m", "quick"),
    "worker": (f"{REAL}/test_worker_tasks.py", f"{REAL}/test_take_envelope.py", f"{REAL}/test_broker_client.py", *ALL),
    "deployments": (f"{REAL}/test_deployments.py", *ALL),
    "commands": (f"{REAL}/test_cli_pool.py", f"{REAL}/test_cli_lock.py", *ALL),
}


@dataclass(frozen=True, slots=True)
class Stack:
    """Versions of the dependencies: pinned ones, and the oldest allowed or those of the lock for the others."""

    name: str
    pins: tuple[str, ...] = ()
    is_lowest: bool = False


NEEDED_IN_ASYNCIO: Final = 8
"""The version of redis-py from which on a store on a cluster works in asyncio; an older one is refused."""
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
        [str(python), *PYTEST, *tests], cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    lines = done.stdout.splitlines() or done.stderr.splitlines() or ["nothing printed"]
    if done.returncode:
        print(*lines[-40:], sep="\n", file=sys.stderr)
    return done.returncode == 0, lines[-1].strip("= ")


def main(names: list[str]) -> int:
    """Run the stacks that are named, or all, and print the table."""
    unknown = set(names) - {stack.name for stack in STACKS}
    if unknown:
        print(f"no stack is called {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in STACKS)}")
        return 2
    is_kept = True
    print("| stack | " + " | ".join((*SHOWN, *PARTS, "seconds")) + " |")
    print("| --- " * (len(SHOWN) + len(PARTS) + 2) + "|", flush=True)
    for stack in STACKS:
        if names and stack.name not in names:
            continue
        begun = time.monotonic()
        python = made(stack)
        found = versions(python)
        row = [found.get(name, "") for name in SHOWN]
        is_old = int(found["redis"].partition(".")[0]) < NEEDED_IN_ASYNCIO
        for name, tests in PARTS.items():
            without = ("-k", "not cluster-async") if is_old and name == "deployments" else ()
            passed, said = outcome(python, (*tests, *without))
            is_kept = is_kept and passed
            row.append("passed" if passed else said)
        print(f"| {stack.name} | " + " | ".join(row) + f" | {time.monotonic() - begun:.0f} |", flush=True)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
