"""How a run of redis-py's own lock tests is read: which failures are expected, and that nothing else may happen."""

import io
import re
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from segmented.errors import SegmentedError
from tests.conformance.locks.redis_py_tests import (
    EXPECTED,
    NO_EXPIRY,
    POLLING,
    is_as_expected,
    read_report,
    requirement,
    summary,
    unpack,
)
from tests.support.paths import ROOT

ASYNC = '<testcase classname="tests.test_asyncio.test_lock.TestLock" name="test_locked[single]"/>'


def report(*cases: str) -> str:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def case(name: str, failure: str = "") -> str:
    inside = f'<failure message="{failure}&#10;more">text</failure>' if failure else ""
    return f'<testcase classname="tests.test_lock.TestLock" name="{name}">{inside}</testcase>'


def test_any_other_failure_is_a_surprise() -> None:
    runs = read_report(report(case("test_locked", "assert 1 == 2"), ASYNC))
    assert "  test_locked: NOT EXPECTED: assert 1 == 2" in summary(runs)
    assert not is_as_expected(runs)


def test_a_test_that_passes_against_what_is_written_is_one_too() -> None:
    runs = read_report(report(case("test_lock"), ASYNC))
    assert "  test_lock: NOT EXPECTED to pass" in summary(runs)
    assert not is_as_expected(runs)


def test_the_page_counts_the_failures_that_are_expected_and_no_others() -> None:
    page = (ROOT / "docs" / "how-to" / "come-from-redis-py.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (\d+) of (\d+) \| (\d+) expect a key .*?, (\d+) count the sleeps", page)
    counts = [tuple(map(int, row)) for row in rows]
    assert [passed + expiring + polling for passed, _, expiring, polling in counts] == [
        count for _, count, *_ in counts
    ]
    assert counts[0][2:] == (Counter(EXPECTED.values())[NO_EXPIRY], Counter(EXPECTED.values())[POLLING])
    assert requirement().split()[0].removeprefix("redis==") in page


def packed(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            member.size = 4 if member.isfile() else 0
            archive.addfile(member, io.BytesIO(b"text") if member.isfile() else None)
    return path


def test_an_archive_with_a_file_outside_of_its_folder_is_refused(tmp_path: Path) -> None:
    for name in ("../out", "redis-1/../../out", "/out"):
        archive = packed(tmp_path / "redis-1.tar.gz", tarfile.TarInfo(name))
        with pytest.raises(SegmentedError, match=r"^redis-1\.tar\.gz has a file outside of its folder: '.*out'; down"):
            unpack(archive, tmp_path / "folder")
        assert not (tmp_path / "out").exists()
