"""Every error of the library keeps its type, message and attributes on its way: pickled, copied, in a task's result."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from celery import Celery
from celery.backends.base import Backend

import segmented
from segmented import errors
from segmented.errors import AcquireTimeout, InFlight, InvalidInput, LeaseLost, SegmentedError
from segmented.models import Settled, SoldOut

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN: Final[dict[str, Any]] = {
    "answer": "an answer of the gate",
    "differing": ("segments 4 instead of 8",),
    "failures": {"n": InvalidInput("it is too long")},
    "found": (1, 4),
    "free_in": 1.5,
    "refusal": SoldOut("o-1", 3, 2, 1, 9),
    "replay": SimpleNamespace(message_id="m"),
    "seen": (1, 7),
    "settled": Settled("o-1", "expired", 1, 0, None, 9, replay=True),
}
"""Arguments that are neither a text nor a number, by name."""


WITHIN: Final = {"NeverAwaited", "NoText", "NotAsked", "TooManySold", "Unanswered"}
"""Errors that callers get as InvalidInput or StoreUnavailable."""
WAIT_ENDED: Final = {"AcquireTimeout", "NoSegmentFree"}


def _kinds(kind: type[SegmentedError]) -> Iterator[type[SegmentedError]]:
    yield kind
    for found in kind.__subclasses__():
        yield from _kinds(found)


def _all_kinds() -> list[type[SegmentedError]]:
    """Return all errors but those of the Celery tasks, whose import has every worker of the process connect."""
    for module in pkgutil.walk_packages(segmented.__path__, "segmented."):
        if not re.search(r"__main__$|\.migrations\.|\.celery|\.testing|\.cli", module.name):
            importlib.import_module(module.name)
    return sorted({kind for kind in _kinds(SegmentedError) if kind.__module__.startswith("segmented.")}, key=str)


def _made(kind: type[SegmentedError]) -> SegmentedError:
    """Make an error with an argument for every parameter."""
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    given: dict[str, Any] = {}
    for one in parameters:
        plain = {"str": one.name, "int": 7, "float": 1.5, "bool": True}
        given[one.name] = GIVEN.get(one.name, plain.get(str(one.annotation).partition(" |")[0]))
    return kind(**given)


@pytest.mark.parametrize("kind", _all_kinds(), ids=lambda kind: kind.__name__)
def test_an_error_that_was_pickled_or_copied_is_the_same(kind: type[SegmentedError]) -> None:
    error = _made(kind)
    error.add_note("and its units could not be given back")
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own bytes
        assert (type(found), str(found), repr(found)) == (kind, str(error), repr(error))
        assert vars(found).keys() == vars(error).keys()


@pytest.mark.parametrize(
    "error",
    [
        SegmentedError(),
        InvalidInput("it is too long"),
        LeaseLost("n", "h"),
        AcquireTimeout("n", timeout=1.5),
        InFlight("k", "m", "running", 2.0),
    ],
    ids=repr,
)
def test_the_result_of_a_task_that_failed_raises_the_error_itself(error: SegmentedError) -> None:
    with Celery("shop", set_as_current=False) as app:
        backend = Backend(app)
        found = backend.exception_to_python(backend.decode(backend.encode(backend.prepare_exception(error))))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_every_error_is_found_in_one_place() -> None:
    """`Decline` and `TryLater` are a step's answers; those of the testing helpers are their own."""
    kinds = [kind for kind in _all_kinds() if not kind.__module__.startswith("segmented.testing")]
    elsewhere = {kind.__name__ for kind in kinds if getattr(errors, kind.__name__, None) is not kind}
    assert elsewhere == WITHIN | {"Decline", "TryLater"}


def test_an_unusable_input_is_a_value_error_and_the_end_of_a_wait_a_timeout_error() -> None:
    kinds = _all_kinds()
    assert [kind for kind in kinds if issubclass(kind, ValueError) is not issubclass(kind, InvalidInput)] == []
    assert {kind.__name__ for kind in kinds if issubclass(kind, OSError)} == WAIT_ENDED
    assert {kind.__name__ for kind in kinds if issubclass(kind, TimeoutError)} == WAIT_ENDED
