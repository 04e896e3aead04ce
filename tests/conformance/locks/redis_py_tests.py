"""Runs redis-py's own lock tests, from its source distribution, on `segmented.compat`."""

from __future__ import annotations

import os
import secrets
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from bench.clusters import free_port
from bench.environments import ROOT, Environment, last_line
from segmented.errors import SegmentedError
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILES: Final = {"tests.test_lock": "threads", "tests.test_asyncio.test_lock": "asyncio"}
"""Kind of test by module, as pytest reports it."""
DOWNLOAD_SECONDS: Final = 300
TESTS_SECONDS: Final = 300

NO_EXPIRY: Final = "it expects a key without an expiry, and ours expires 30 s after its holder dies"
POLLING: Final = "it counts the sleeps of a polling waiter, and ours is notified"
EXPECTED: Final = {
    "test_lock": NO_EXPIRY,
    "test_lock_token": NO_EXPIRY,
    "test_lock_token_thread_local_false": NO_EXPIRY,
    "test_blocking_timeout": POLLING,
    "test_context_manager_blocking_timeout": POLLING,
}
"""The tests that are expected to fail, and why."""


ENVIRONMENT: Final = Environment("redis-py-tests", Path(__file__).parent)
"""Pytest, its asyncio plugin, and redis-py."""


def requirement() -> str:
    """Return the requirement of redis-py itself."""
    lines = ENVIRONMENT.requirements.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("redis=="))


@dataclass(frozen=True, slots=True)
class TestRun:
    """The result of one test; each set of parameters counts as a test."""

    __test__ = False  # not for pytest

    kind: str
    """`threads` or `asyncio`."""
    name: str
    failure: str
    """The first line of the failure, or empty if it passed."""

    @property
    def reason(self) -> str | None:
        """Return why it is expected to fail, or None if it should pass."""
        return EXPECTED.get(self.name.partition("[")[0])


def run_tests(python: Path) -> list[TestRun]:
    """Download redis-py's source distribution into a temporary folder, and run its lock tests on our classes.

    Raises SegmentedError if it cannot be downloaded, or the tests cannot be run.
    """
    with TemporaryDirectory(prefix="segmented-redis-py-") as folder:
        sources = Path(folder)
        pip = (str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
        _run((*pip, "--no-binary", ":all:", "--dest", folder, requirement()), sources, DOWNLOAD_SECONDS)
        unpack(next(sources.glob("redis-*.tar.gz")), sources)
        (unpacked,) = (found.parent for found in sources.glob("*/tests"))
        report = sources / "report.xml"
        port, password = free_port(), secrets.token_hex(24)
        with ValkeyServer.start(config={"port": str(port), "bind": "127.0.0.1", "requirepass": password}):
            options = (
                "-p",
                "tests.conformance.locks.lock_class",
                "-p",
                "no:cacheprovider",
                "--quiet",
                f"--junitxml={report}",
            )
            paths = [f"{module.replace('.', '/')}.py" for module in FILES]
            # a variable, because other accounts can read a command line
            url = {"PYTEST_ADDOPTS": f"--redis-url=redis://:{password}@127.0.0.1:{port}/0"}
            command = (str(python), "-m", "pytest", *options, *paths)
            _run(command, unpacked, TESTS_SECONDS, fine=(0, 1), variables=url)  # 1: some tests failed
        return read_report(report.read_text(encoding="utf-8"))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the plain files of a tar archive into `folder`. Raises SegmentedError for a name that leads out of it.

    Python 3.11.2, which Debian 12 has, does not know the filters of `tarfile`.
    """
    with tarfile.open(archive) as members:
        for member in members:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                message = f"{archive.name} has a file outside of its folder: {member.name!r}; download it again"
                raise SegmentedError(message)
            content = members.extractfile(member) if member.isfile() else None  # a link could lead out of the folder
            if content is not None:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())


def read_report(text: str) -> list[TestRun]:
    """Read the tests of a report in JUnit's format."""
    found = []
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314  # written by our own pytest run
        module = case.get("classname", "").rpartition(".")[0]
        failures = [*case.findall("failure"), *case.findall("error"), *case.findall("skipped")]
        said = failures[0].get("message", "") or failures[0].tag if failures else ""
        found.append(TestRun(FILES[module], case.get("name", ""), said.partition("\n")[0]))
    return found


def summary(runs: Sequence[TestRun]) -> str:
    """Return how many tests passed, and for each failure the reason or that it is unexpected."""
    lines = []
    for kind in FILES.values():
        of_kind = [run for run in runs if run.kind == kind]
        passed = sum(not run.failure for run in of_kind)
        lines.append(f"{kind}: {passed} of {len(of_kind)} passed")
        lines += [f"  {run.name}: {run.reason or f'NOT EXPECTED: {run.failure}'}" for run in of_kind if run.failure]
        lines += [f"  {run.name}: NOT EXPECTED to pass" for run in of_kind if not run.failure and run.reason]
    return "\n".join(lines)


def is_as_expected(runs: Sequence[TestRun]) -> bool:
    """Return whether tests of both kinds ran, and exactly the expected ones failed."""
    is_whole = {run.kind for run in runs} == set(FILES.values())
    return is_whole and all(bool(run.failure) is bool(run.reason) for run in runs)


def _run(
    command: Sequence[str],
    folder: Path,
    seconds: float,
    *,
    fine: Sequence[int] = (0,),
    variables: Mapping[str, str] | None = None,
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    try:
        ended = subprocess.run(  # our own
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"{' '.join(command[1:4])} had not ended after {seconds:g} s"
        raise SegmentedError(message) from error
    if ended.returncode not in fine:
        why = last_line(ended.stderr or ended.stdout, "no reason given")
        message = f"{' '.join(command[1:4])} failed: {why}"
        raise SegmentedError(message)
