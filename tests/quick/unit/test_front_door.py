"""The names of `segmented` itself: few, and the error for one that is elsewhere says where."""

from __future__ import annotations

from importlib import import_module

import pytest

import segmented
from tests.support.reference import public_names

pytestmark = pytest.mark.timeout(300)


def test_the_front_door_has_at_most_45_names() -> None:
    assert len(public_names(segmented)) <= 45
    assert len(set(public_names(segmented))) == len(public_names(segmented))


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
