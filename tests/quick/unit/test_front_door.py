"""The names of `segmented` itself: few, and the error for one that is elsewhere says where."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import segmented
from segmented.cli.reference import public_names
from segmented.imports import EXTRAS

PUBLIC = segmented.LATE
PATIENCE = 120
"""Seconds that a process of its own may take on a slow machine."""

pytestmark = pytest.mark.timeout(300)


def printed(program: str) -> str:
    """Return what a program prints in a new process without the packages of the extras."""
    hidden = f"import sys\nfor name in {sorted(EXTRAS)}: sys.modules[name] = None\n"
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", hidden + program]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


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


def test_the_gates_alone_need_an_extra_and_are_left_out_of_an_import_of_all() -> None:
    assert set(segmented.LATE) - set(segmented.__all__) == {"AsyncGate", "Gate"}
    assert len(segmented.LATE) == len(segmented.__all__) + 2


def elsewhere() -> list[tuple[str, str]]:
    """Return each public name that is not at the front door, with the first area that has it."""
    found: dict[str, str] = {}
    for area in segmented.AREAS:
        for name in public_names(import_module(area)):
            if name not in segmented.LATE:
                found.setdefault(name, area)
    return sorted(found.items())


@pytest.mark.parametrize(("name", "area"), elsewhere())
def test_the_error_for_a_name_that_is_elsewhere_says_where(name: str, area: str) -> None:
    sentence = f"segmented has no '{name}': from {area} import {name}"
    with pytest.raises(AttributeError) as caught:
        getattr(segmented, name)
    assert str(caught.value) == sentence
    with pytest.raises(ImportError) as refused:
        exec(f"from segmented import {name}", {"__name__": "shop"})  # noqa: S102  # a program that imports it
    assert str(refused.value) == sentence


def test_a_name_that_is_nowhere_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match=r"^module 'segmented' has no attribute 'Ticket'$"):
        segmented.Ticket  # type: ignore[attr-defined]  # noqa: B018  # what is tested


def test_a_gate_names_the_extra_that_it_needs() -> None:
    program = "import segmented\ntry:\n    segmented.Gate\nexcept ModuleNotFoundError as error:\n    print(error)"
    needed = "needs the package sqlalchemy: pip install 'segmented-locks[orders]'"
    assert printed(program) == f"segmented.Gate {needed}\n"


@pytest.mark.parametrize("name", ["Once", "OnceResult", "OnceRule"])
def test_a_task_that_runs_once_names_the_extra_that_it_needs(name: str) -> None:
    program = (
        f"try:\n    from segmented.dedup.celery import {name}\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert printed(program).endswith(": pip install 'segmented-locks[workers]'\n")
    assert printed(program).startswith(f"segmented.dedup.celery.{name} needs the package ")
