"""One page, run from its first block to its last."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

import pytest
import yaml
from _pytest.mark import ParameterSet

from tests.quick.tidy.sources import committed
from tests.real.docs.addresses import Addresses
from tests.real.docs.blocks import DATA, FILED, Block, blocks_of
from tests.real.docs.compare import missing
from tests.real.docs.sessions import Failed, PythonSession, ShellSession
from tests.support.paths import ROOT

AUTHOR: Final = ("-c", "user.name=reader", "-c", "user.email=reader@example.com")
CHECKOUT: Final = "<!-- in a checkout -->"
KILLS: Final = "$ kill -9"
SERVES_ITSELF: Final = "$ segmented server"
SET_UP: Final = re.compile(r"(?:python3? -m )?pip install |python3? -m venv |(?:\.|source) \S+/activate$")
"""What the install ring runs."""
BENCH: Final = {
    "load-test-with-locust",
    "measure-granularity",
    "run-the-demo",
    "torture",
}
"""Pages whose commands measure or torture: they run by hand, as the bench does."""
BIN: Final = Path(sys.executable).parent


def pages() -> list[Path]:
    """Return the pages whose blocks run."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted((docs / "tutorial").glob("*.md")), *sorted((docs / "how-to").glob("*.md"))]


def cases(is_one: Callable[[Path], bool]) -> list[ParameterSet]:
    """Return the pages of a test file, as parameters."""
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.long] * (page.stem in BENCH))
        for page in pages()
        if is_one(page)
    ]


def run_page(page: Path, database: Callable[[], str], warm: Path | None) -> None:
    """Run a page in an empty folder against fresh servers; raises Failed with the block's line."""
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(page)
    if CHECKOUT in text or KILLS in text:  # it has modules of its own, or looks for the workers of its sale
        warm = None
    with ExitStack() as stack:
        addresses = Addresses("".join(block.code for block in blocks), stack, database)
        folder = Path(tempfile.mkdtemp(prefix="docs-"))
        folder.chmod(0o711)  # as root, PostgreSQL's account passes it to the data
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        home = Path(tempfile.mkdtemp(prefix="docs-"))  # sockets and the address that `segmented server` leaves
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}" if warm is None else f"{warm}:{BIN}:{os.environ['PATH']}",
            "HOME": str(home),
            "TMPDIR": str(home),
            "TERM": "dumb",
            "NO_COLOR": "1",
        }
        if "PYTHONPATH" in os.environ:  # in a checkout beside the installed one
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        if CHECKOUT in text:
            check_out(folder)
            environment["PYTHONPATH"] = str(folder)
        if SERVES_ITSELF not in text:
            environment["SEGMENTED_URL"] = addresses.default_url
        run = Run(page.name, folder, environment, addresses, stack, warm)
        for block in blocks:
            if block.why_not is None and block.is_code:
                try:
                    run.block(block)
                except Failed as error:
                    raise Failed(f"{page.name}, block at line {block.line}: {error}") from None


def check_out(folder: Path) -> None:
    """Put a copy of what is committed into the folder, but for published results, and our environment.

    Files keep their times, so that Python need not compile again what it has compiled here.
    """
    for file in committed():
        path = file.relative_to(ROOT)
        if not path.is_relative_to("docs/results"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / path)
            if path.suffix == ".py" and (compiled := Path(cache_from_source(str(file)))).exists():
                (folder / path.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, folder / path.parent / "__pycache__")
    (folder / ".venv").symlink_to(BIN.parent)
    for words in (("init",), ("add", "--all"), (*AUTHOR, "commit", "--message", "all")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)  # noqa: S607  # git is wherever it is


class Run:
    """The sessions of a page, which begin with its first block of their kind."""

    def __init__(  # what a page has
        self,
        name: str,
        folder: Path,
        environment: dict[str, str],
        addresses: Addresses,
        stack: ExitStack,
        warm: Path | None,
    ) -> None:
        self._name = name
        self._folder = folder
        self._environment = environment
        self._addresses = addresses
        self._stack = stack
        self._warm = warm

    @cached_property
    def _python(self) -> PythonSession:
        session = PythonSession(self._folder, self._environment, self._warm)
        self._stack.callback(session.close)
        return session

    @cached_property
    def _shell(self) -> ShellSession:
        return self._stack.enter_context(ShellSession(self._folder, self._environment))

    def block(self, block: Block) -> None:
        """Run a block: save it, parse it, type it."""
        code = self._addresses.rewritten(block.code)
        if block.kind in DATA:
            parse(block.kind, code)
        if block.file is not None:
            (self._folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / block.file).write_text(code)
        elif block.kind == "python":
            printed = self._python.run(code, name=self._name, line=block.line)
            if block.printed is not None and (line := missing(block.printed, printed, exactly=True)) is not None:
                raise Failed(f"the page and Python differ at {line!r}; printed:\n{printed}")
        elif block.kind == "bash":
            self._command(code, "", 0)
        elif block.kind == "console":
            self._console(block)
        elif block.kind not in FILED:
            raise Failed(f"nobody knows how to run a block of {block.kind or 'no kind'}")

    def _console(self, block: Block) -> None:
        commands = [one for one in block.commands if not SET_UP.match(one.line)]
        for number, command in enumerate(commands, start=1):
            line, is_last = self._addresses.rewritten(command.line), number == len(commands)
            if block.mark == "background" and is_last:
                printed = command.printed
                self._shell.start(line, ready=self._addresses.rewritten(printed) if self._addresses.serves else printed)
            else:
                self._command(line, command.printed, block.exit_code if is_last else 0)

    def _command(self, line: str, expected: str, exit_code: int) -> None:
        done = self._shell.run(line)
        if done.code != exit_code:
            raise Failed(f"{line} ended with {done.code}:\n{done.printed}")
        if (lacking := missing(expected, done.printed)) is not None:
            raise Failed(f"{line} did not print {lacking!r}, but:\n{done.printed}")


def parse(kind: str, code: str) -> None:
    """Parse a block of data; raises the parser's error."""
    if kind == "toml":
        tomllib.loads(code)
    elif kind == "yaml":
        list(yaml.safe_load_all(code))
    else:
        json.loads(code)
