"""The names of `segmented` itself: few, without extras, and what moved is found with a warning that says where."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

import segmented
from segmented.imports import EXTRAS

PUBLIC = {**segmented.LATE, **segmented.MOVED}


def printed(program: str) -> str:
    """Return what a program prints in a new process without the packages of the extras."""
    hidden = f"import sys\nfor name in {sorted(EXTRAS)}: sys.modules[name] = None\n"
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", hidden + program]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout


def test_the_front_door_has_at_most_45_names() -> None:
    assert len(segmented.__all__) <= 45
    assert len(set(segmented.__all__)) == len(segmented.__all__)


def test_all_names_of_the_front_door_need_the_driver_alone() -> None:
    program = "from segmented import *\nimport segmented\nprint(sorted(set(segmented.__all__) - set(globals())))"
    assert printed(program) == "[]\n"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_home_of_every_name_has_it(name: str) -> None:
    home = import_module(PUBLIC[name])
    assert name in getattr(home, "__all__", vars(home))


def test_a_name_is_either_at_the_front_door_or_moved() -> None:
    assert set(segmented.MOVED) & {*segmented.__all__, *dir(segmented)} == set()
    assert len(segmented.MOVED) == 103
    assert set(segmented.MOVED.values()) == {f"segmented.{area}" for area in ("dedup", "errors", "locks", "stock")}


@pytest.mark.parametrize("name", sorted(segmented.MOVED))
def test_a_moved_name_is_the_same_object_as_in_its_new_place(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"^segmented\.{name} is {segmented.MOVED[name]}\.{name} now$"):
        value = getattr(segmented, name)
    assert value is getattr(import_module(segmented.MOVED[name]), name)
    assert name not in dir(segmented)


@pytest.mark.parametrize("program", ["from segmented import FenceGuard", "import segmented\nsegmented.FenceGuard"])
def test_every_use_of_a_moved_name_warns_once_where_it_is(program: str) -> None:
    for _ in range(2):
        with warnings.catch_warnings(record=True, action="always") as seen:
            exec(compile(program, "shop.py", "exec"), {"__name__": "shop"})  # noqa: S102  # a program that imports it
        assert [(str(each.message), each.filename, each.lineno) for each in seen] == [
            ("segmented.FenceGuard is segmented.locks.FenceGuard now", "shop.py", len(program.splitlines()))
        ]


def test_a_moved_name_names_the_extra_that_it_needs() -> None:
    program = "import segmented\ntry:\n    segmented.OnceTable\nexcept ModuleNotFoundError as error:\n    print(error)"
    needed = "needs the package sqlalchemy: pip install 'segmented-locks[orders]'"
    assert printed(program) == f"segmented.OnceTable {needed}\n"
