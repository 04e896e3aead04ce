"""The names of `segmented` itself: few, and the error for one that is elsewhere says where."""

import subprocess
import sys

import pytest

from segmented.imports import EXTRAS, install

PATIENCE = 120
"""Seconds that a process of its own may take on a slow machine."""


def printed(program: str) -> str:
    """Return what a program prints in a new process without the packages of the extras."""
    hidden = f"import sys\nfor name in {sorted(EXTRAS)}: sys.modules[name] = None\n"
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", hidden + program]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


def test_all_names_of_the_front_door_need_the_driver_alone() -> None:
    program = "from segmented import *\nimport segmented\nprint(sorted(set(segmented.__all__) - set(globals())))"
    assert printed(program) == "[]\n"


def test_a_gate_names_the_extra_that_it_needs() -> None:
    program = "import segmented\ntry:\n    segmented.Gate\nexcept ModuleNotFoundError as error:\n    print(error)"
    needed = f"needs the package sqlalchemy: {install('orders')}"
    assert printed(program) == f"segmented.Gate {needed}\n"


@pytest.mark.parametrize("name", ["Once", "OnceResult", "OnceRule"])
def test_a_task_that_runs_once_names_the_extra_that_it_needs(name: str) -> None:
    program = (
        f"try:\n    from segmented.dedup.celery import {name}\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert printed(program).endswith(f": {install('workers')}\n")
    assert printed(program).startswith(f"segmented.dedup.celery.{name} needs the package ")
