"""Raise an exception where a signal handler could raise it, at the n-th such point of a call.

CPython runs the handlers of signals at a few kinds of instructions only: at the start of a Python function, after a
call of something that is not a plain Python function, and at the end of a round of a loop. The points are those of the
project's own functions, of redis-py's, and of two modules of the standard library. Those of the function that the test
calls count if the test says so, except for its start: the exception is the caller's before its first step, as it is
after its last one.
"""

import contextlib
import dis
import gc
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import redis

import segmented

SOURCES: Final = tuple(str(Path(module.__file__ or "").parent) for module in (segmented, redis)) + tuple(
    str(module.__file__) for module in (contextlib, threading)
)
BEGINS: Final = "RESUME"
STARTED: Final = "started"
CHECKED_AFTER: Final = (BEGINS, "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")

PLAIN_CALLS: Final = ("CALL", "CALL_KW")
SHORT_CALLS: Final = 5
"""Calls in a row that have no point of a number: a single one may be short because the machine stood still in it."""


class Struck(BaseException):
    """The exception of the signal handler."""


class Striker:
    """Counts the points of what the body of its `with` statement calls in this thread, and raises at one of them.

    The garbage collector rests meanwhile: an exception in a finalizer would strike nobody.
    """

    def __init__(self, at: int, caller: str, *, called: bool = False, error: type[BaseException] = Struck) -> None:
        """Raise `error` at point `at`, from 1, of a call that the file `caller` makes; `called`: in the callee, too."""
        self._at = at
        self._caller = caller
        self._called = called
        self._error = error
        self._points = 0
        self._last: dict[int, str] = {}
        self.where = ""
        """The place that was struck; empty if the call had fewer points."""

    def __enter__(self) -> None:
        """Begin."""
        self._traced = sys.gettrace()
        gc.disable()
        sys.settrace(self)

    def __exit__(self, *_: object) -> None:
        """End."""
        sys.settrace(self._traced)
        gc.enable()

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401  # a trace function
        """Trace one frame."""
        code = frame.f_code
        if event == "call":
            is_outermost = frame.f_back is not None and frame.f_back.f_code.co_filename == self._caller
            if frame.f_back is not None and _is_plain(frame):
                self._last[id(frame.f_back)] = ""
            if not code.co_filename.startswith(SOURCES) or (is_outermost and not self._called):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._last[id(frame)] = STARTED if is_outermost else BEGINS
        elif event == "opcode":
            before, name = self._last.get(id(frame), ""), dis.opname[code.co_code[frame.f_lasti]]
            self._last[id(frame)] = "" if before is STARTED and name == BEGINS else name
            self._points += before in CHECKED_AFTER
            if self._points == self._at and not self.where:
                self.where = f"{_shown(code.co_filename)}:{frame.f_lineno} {code.co_name}"
                raise self._error
        elif event == "return":
            self._last.pop(id(frame), None)
        return self


def _is_plain(frame: FrameType) -> bool:
    """Return whether the frame is that of a plain function, and not of one that a call of another object runs."""
    back, code = frame.f_back, frame.f_code
    if back is None or code.co_flags & inspect.CO_GENERATOR or code.co_name.startswith("__"):
        return False
    place = back.f_lasti
    while place > 0 and dis.opname[back.f_code.co_code[place]] == "CACHE":  # it follows the instruction of the call
        place -= 2
    return dis.opname[back.f_code.co_code[place]] in PLAIN_CALLS


def _shown(file: str) -> str:
    return file.removeprefix(str(Path(segmented.__file__).parent.parent))


def struck_everywhere(strike: Callable[[int], tuple[str, list[str]]]) -> tuple[int, dict[str, list[str]]]:
    """Call `strike` for each point until it names no place; return the last point, and what was wrong, by place."""
    left: dict[str, list[str]] = {}
    at = 0
    while True:
        at += 1
        for _ in range(SHORT_CALLS):
            where, wrong = strike(at)
            if wrong:
                left[f"{at} {where}"] = wrong
            if where:
                break
        else:
            return at, left
