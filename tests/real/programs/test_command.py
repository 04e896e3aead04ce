"""The command line as a user meets it: its two streams and its exit code, in a real process where one matters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from segmented.imports import install
from tests.support.paths import ROOT

COMMAND = Path(sysconfig.get_path("scripts")) / "segmented"


READY = "ready"


LIMIT = 120
"""Seconds that a process of its own may take on a slow machine."""


def segmented(*words: str, plugins: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        env=environment(plugins),
    )


def environment(plugins: Path | None) -> dict[str, str]:
    extra = {"PYTHONPATH": str(plugins)} if plugins else {}
    return {**os.environ, "PYTHONUNBUFFERED": "1", **extra}


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """Another installed package, whose commands fail in every way that `main` speaks about."""
    (tmp_path / "shop.py").write_text(
        f"""
import time, typer
from segmented.errors import InvalidInput, StoreUnavailable

def bad(): raise InvalidInput("orders.csv, line 7: quantity 'x' is not a whole number")
def away(): raise StoreUnavailable
def judged(): raise typer.Exit(1)
def counted(quantity: int): typer.echo(f"quantity {{quantity}}")
def endless():
    while True: typer.echo("more")
def slow():
    typer.echo("{READY}")
    time.sleep(30)

group = typer.Typer(help="A group of commands.")
@group.command()
def status(): typer.echo("open")
@group.command()
def close(): typer.echo("closed")
""",
        encoding="utf-8",
    )
    (tmp_path / "lacking.py").write_text("import package_that_nobody_has\n", encoding="utf-8")
    metadata = tmp_path / "shop-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n", encoding="utf-8")
    names = ["bad", "away", "judged", "counted", "endless", "slow", "group"]
    lines = [f"{name} = shop:{name}" for name in names] + ["lacking = lacking:lacking"]
    (metadata / "entry_points.txt").write_text("\n".join(["[segmented.commands]", *lines]), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("words", [["pool", "--help"], []])
def test_without_the_packages_of_the_extra_a_sentence_names_it(tmp_path: Path, words: list[str]) -> None:
    program = "import sys; sys.modules['typer'] = None; from segmented.__main__ import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.endswith(f"{install('cli')}\n")
    assert ran.stderr.count("\n") == 1


def test_without_any_package_the_version_is_told() -> None:
    hidden = "import sys; sys.modules.update(typer=None, rich=None, redis=None); sys.argv[1:] = ['--version']"
    program = f"{hidden}; from segmented.__main__ import main; main()"
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "segmented 0.3.0\n"


@pytest.mark.parametrize(
    ("name", "module", "package", "extra"),
    [
        ("Gate", "segmented.orders", "sqlalchemy", "orders"),
        ("SqlRowLock", "segmented.locks", "sqlalchemy", "orders"),
        ("OnceTable", "segmented.dedup", "sqlalchemy", "orders"),
        ("add_tasks", "segmented.celery", "celery", "workers"),
        ("Once", "segmented.dedup.celery", "celery", "workers"),
    ],
)
def test_a_name_of_an_extra_that_is_not_installed_says_which(name: str, module: str, package: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"try:\n    from {module} import {name}\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith(f".{name} needs the package {package}: {install(extra)}\n")


@pytest.mark.parametrize("words", [("--version",), ("nonsense",)])
def test_what_asks_for_no_command_imports_none(words: tuple[str, ...]) -> None:
    said = "import sys; from segmented.cli.main import run; run(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", said, *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert {"locust", "celery", "bench.cli", "segmented.cli.pool"} & set(ran.stdout.split()) == set()
    assert "segmented.cli.main" in ran.stdout.split()


def test_without_the_checkout_its_commands_say_where_they_are() -> None:
    program = (
        "import pathlib, sys; from segmented.cli import main; main.CHECKOUT = pathlib.Path('/nowhere'); "
        "sys.exit(main.run(['demo']))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "segmented: segmented demo measures the library, and comes with its checkout, not with the installed package: "
        "clone the repository, run `make setup` there, and use .venv/bin/segmented\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "printed", "said"),
    [
        (("counted", "3"), 0, "quantity 3\n", ""),
        (("group", "status"), 0, "open\n", ""),
        (("bad",), 2, "", "segmented: orders.csv, line 7: quantity 'x' is not a whole number\n"),
        (("away",), 1, "", "segmented: The store cannot be reached; whether the operation ran is unknown.\n"),
        (("judged",), 1, "", ""),
        (
            ("lacking",),
            2,
            "",
            f"segmented: segmented lacking cannot run: package_that_nobody_has is not installed; {install('all')}\n",
        ),
    ],
)
def test_a_command_of_another_package_runs_and_its_failure_is_one_sentence(
    plugins: Path, words: tuple[str, ...], code: int, printed: str, said: str
) -> None:
    ran = segmented(*words, plugins=plugins)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, printed, said)


def test_a_command_whose_package_is_missing_takes_no_other_away(plugins: Path) -> None:
    helped = " ".join(segmented("--help", plugins=plugins).stdout.split())
    assert "Not available: lacking (package_that_nobody_has is not installed;" in helped
    assert "counted" in helped


def test_an_interrupt_ends_with_130(plugins: Path) -> None:
    with subprocess.Popen(
        [str(COMMAND), "slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(plugins)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{READY}\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT)
    assert (process.returncode, stderr) == (130, "segmented: interrupted\n")


@pytest.mark.parametrize("words", [["--version"], ["endless"]])
def test_an_output_that_cannot_be_written_is_one_sentence(words: list[str], plugins: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [str(COMMAND), *words],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=LIMIT,
            env=environment(plugins),
        )
    said = b"segmented: standard output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (2, said)


@pytest.mark.parametrize(
    ("closed", "said"),
    [(">&-", "segmented: standard output is closed: send it to a file, a pipe or /dev/null\n"), (">&- 2>&-", "")],
)
def test_without_an_output_at_all_nothing_is_done(closed: str, said: str) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f"exec '{COMMAND}' pool --help {closed}"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (2, said)


@pytest.mark.parametrize("words", [["endless"], ["--version"]])
def test_a_reader_that_went_away_is_no_failure_of_ours(words: list[str], plugins: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as output:
        ran = subprocess.run(
            [str(COMMAND), *words],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=LIMIT,
            env=environment(plugins),
        )
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_the_reference_page_is_what_the_help_says() -> None:
    page = subprocess.run(
        [sys.executable, "-m", "tests.support.reference"], capture_output=True, text=True, check=True, timeout=LIMIT
    ).stdout
    written = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert written.split() == page.split(), "`make docs` writes it"  # lines may break elsewhere
