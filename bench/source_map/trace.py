"""Records the way of one call through the files of `segmented`, with the interpreter's own profiling hook.

A move is one passing of control from one file to another: a call into another file is one, and the return from it is
another. Calls inside other libraries and in other threads are not recorded. The hook works alike on all
versions of Python that are supported.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import event

import segmented
from segmented.protocol.wire import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from sqlalchemy import Engine

SOURCE: Final = Path(segmented.__file__).parent
DATABASE: Final = "SQL"
"""The column of the statements for the order database, as if it were a folder."""
TABLE: Final = re.compile(r"\b(?:INTO|UPDATE|FROM)\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """The first time that a file is entered, a script is called or a statement is executed."""

    caller: str | None
    """The file that control came from: None for the caller of the library."""
    place: str
    """Path of the file below segmented/, or a statement with its folder."""
    function: str

    @property
    def folder(self) -> str:
        """Return the top folder of the file, which is empty for a file of segmented/ itself."""
        return self.place.partition("/")[0] if "/" in self.place else ""

    @property
    def name(self) -> str:
        """Return the path of the file inside of its folder."""
        return self.place.partition("/")[2] or self.place


@dataclass(slots=True)
class Trace:
    """The record of one call."""

    title: str
    moves: int = 0
    entries: list[Entry] = field(default_factory=list)
    arrivals: Counter[str] = field(default_factory=Counter)
    """How often control came to a file, by call and by return."""
    _at: str | None = None
    _seen: dict[str, int] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """Return how many Python files the call entered."""
        return sum(one.place.endswith(".py") for one in self.entries)

    def note(self, frame: FrameType, what: str, value: object) -> None:
        """Serve as the profiling hook."""
        here = _place(frame.f_code.co_filename)
        if here is None:
            return
        if what == "call":
            self._enter(here, frame.f_code.co_qualname)
        elif what == "return":
            if isinstance(value, Call) and value.script is not None:
                self._first(here, _script(value.script.name), "runs on the server", is_later_better=True)
            self._move(_caller(frame))

    def execute(self, statement: str) -> None:
        """Note a statement that is sent to the order database."""
        table = TABLE.search(statement)
        said = statement.split(None, 1)[0].upper() + (f" {table[1]}" if table else "")
        self._first(self._at, f"{DATABASE}/{said}", "runs in the database")

    def _enter(self, place: str, function: str) -> None:
        self._first(self._at, place, function)
        self._move(place)

    def _move(self, place: str | None) -> None:
        if place != self._at:
            self.moves += place is not None and self._at is not None  # those from and to the caller are not ours
            self._at = place
            if place is not None:
                self.arrivals[place] += 1

    def _first(self, caller: str | None, place: str, function: str, *, is_later_better: bool = False) -> None:
        """Note a place when it is new. With `is_later_better` the last file that handed it on counts as its caller."""
        if place not in self._seen:
            self._seen[place] = len(self.entries)
            self.entries.append(Entry(caller, place, function))
        elif is_later_better and place.rpartition("/")[0] == (caller or "").rpartition("/")[0]:
            self.entries[self._seen[place]] = Entry(caller, place, function)


@contextmanager
def recorded(title: str, engine: Engine | None = None) -> Iterator[Trace]:
    """Record what this thread does inside of the `with` statement, and what it sends to the order database."""
    trace = Trace(title)

    def executes(*arguments: Any) -> None:  # noqa: ANN401  # SQLAlchemy's own: the statement is the third
        trace.execute(arguments[2])

    if engine is not None:
        event.listen(engine, "before_cursor_execute", executes)
    was_enabled = gc.isenabled()
    gc.disable()  # a finalizer that runs in between would be recorded, too
    before: Callable[..., object] | None = sys.getprofile()
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        if was_enabled:
            gc.enable()
        if engine is not None:
            event.remove(engine, "before_cursor_execute", executes)


@cache
def _place(file: str) -> str | None:
    path = Path(file)
    return path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else None


@cache
def _script(name: str) -> str:
    (found,) = SOURCE.rglob(f"{name}.lua")
    return found.relative_to(SOURCE).as_posix()


def _caller(frame: FrameType) -> str | None:
    above = frame.f_back
    while above is not None:
        place = _place(above.f_code.co_filename)
        if place is not None:
            return place
        above = above.f_back
    return None
