"""What takes long to import, or may not be installed, is imported when it is asked for."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

import segmented
from segmented import dedup, locks, servers
from segmented.imports import without_collecting
from segmented.servers.valkey import ValkeyServer

LATE_MODULES = ("sqlalchemy", "kazoo", "celery", "psycopg", "pymysql", "asyncmy", "segmented.dedup", "segmented.compat")


def found_after(imports: str, names: tuple[str, ...]) -> str:
    """Return which of these modules a new process has after some imports."""
    words = f"import sys, {imports}; print([name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True, timeout=20).stdout


def test_importing_the_library_imports_no_driver() -> None:
    assert found_after("segmented, segmented.locks", LATE_MODULES) == "[]\n"


def test_a_command_in_a_pipe_imports_nothing_that_draws() -> None:
    commands = ", ".join(f"segmented.cli.{name}" for name in ("main", "advise", "lock", "pool"))
    assert found_after(commands, ("rich", *LATE_MODULES)) == "[]\n"


def test_who_looks_for_a_running_server_imports_nothing_that_starts_one() -> None:
    assert found_after("segmented.servers.announcement", ("structlog", "psutil", "rich")) == "[]\n"
    assert servers.ValkeyServer is ValkeyServer
    assert sorted(servers.LATE) == sorted(servers.__all__)


def test_garbage_is_left_alone_while_much_is_imported_and_only_then() -> None:
    seen = []
    with without_collecting():
        seen.append(gc.isenabled())
        with without_collecting():
            pass
        seen.append(gc.isenabled())
    assert (seen, gc.isenabled()) == ([False, False], True)


@pytest.mark.parametrize("name", locks.LATE)
def test_a_late_name_is_the_same_wherever_it_is_imported_from(name: str) -> None:
    assert getattr(segmented, name) is getattr(locks, name)
    assert getattr(segmented, name).__module__ == locks.LATE[name]


def test_every_name_of_deduplication_is_found_at_the_top() -> None:
    late = {name for name, module in segmented.LATE.items() if module == "segmented.dedup"}
    assert late == set(dedup.__all__)
    assert [name for name in late if getattr(segmented, name) is not getattr(dedup, name)] == []
    assert late <= set(segmented.__all__)


@pytest.mark.parametrize("module", [segmented, locks, servers])
def test_a_name_that_does_not_exist_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'SqlRowLok'"):
        module.SqlRowLok  # type: ignore[attr-defined]  # noqa: B018  # misspelled on purpose
