"""The names of `segmented` itself: few, and the error for one that is elsewhere says where."""

from __future__ import annotations

from importlib import import_module

import pytest

import segmented
from segmented.cli.reference import public_names

PUBLIC = segmented.LATE

pytestmark = pytest.mark.timeout(300)


def test_the_front_door_has_at_most_45_names() -> None:
    assert len(public_names(segmented)) <= 45
    assert len(set(public_names(segmented))) == len(public_names(segmented))


def test_the_home_of_every_name_has_it() -> None:
    homes = {name: import_module(home) for name, home in PUBLIC.items()}
    assert [name for name, home in homes.items() if name not in getattr(home, "__all__", vars(home))] == []


def test_the_gates_alone_need_an_extra_and_are_left_out_of_an_import_of_all() -> None:
    assert set(segmented.LATE) - set(public_names(segmented)) == {"AsyncGate", "Gate"}
    assert len(segmented.LATE) == len(public_names(segmented)) + 2


def elsewhere() -> list[tuple[str, str]]:
    """Return each public name that is not at the front door, with the first area that has it."""
    found: dict[str, str] = {}
    for area in segmented.AREAS:
        for name in public_names(import_module(area)):
            if name not in segmented.LATE:
                found.setdefault(name, area)
    return sorted(found.items())


def test_the_error_for_a_name_that_is_elsewhere_says_where() -> None:
    for name, area in elsewhere():
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
