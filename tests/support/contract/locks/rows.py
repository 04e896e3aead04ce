"""The rows of the suite: what must hold, and the function that finds out. A row's id is that of the catalogue."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.contract.locks import cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.contract.locks.lab import Lab

    Case = Callable[[Lab], None]


class RowFailed(AssertionError):
    """The lock does not do what the row asks; the message says what it does instead."""


@dataclass(frozen=True, slots=True)
class Row:
    """One property of locks."""

    row_id: str
    must_hold: str
    case: Case
    needs: tuple[str, ...]
    """What a lock has to offer for the row to apply; keys of `WHY_NOT`."""

    def __str__(self) -> str:
        """Name the parameter of a test."""
        return self.row_id


_rows: Final[dict[str, Row]] = {}


def row(row_id: str, must_hold: str, *, needs: tuple[str, ...] = ()) -> Callable[[Case], Case]:
    """Make a row of a function; `must_hold` is one sentence."""

    def register(case: Case) -> Case:
        if row_id in _rows and _rows[row_id].case.__qualname__ != case.__qualname__:
            raise ValueError(f"row {row_id} is there already")
        _rows[row_id] = Row(row_id, must_hold, case, needs)
        return case

    return register


def all_rows() -> list[Row]:
    """Return every row, in the order of the catalogue."""
    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"{cases.__name__}.{module.name}")
    return sorted(_rows.values(), key=lambda found: (found.row_id[0], int(found.row_id[1:])))


def must(condition: object, otherwise: str) -> None:
    """Go on if the condition is so; else the row has failed, for this reason."""
    if not condition:
        raise RowFailed(otherwise)
