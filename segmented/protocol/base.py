"""What every effect and every operation is."""

from __future__ import annotations

from typing import Generic, TypeVar

AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Effect(Generic[AnswerT_co]):
    """Something a plan asks its driver to do; the answer comes back at the `yield`."""

    __slots__ = ()


class Operation(Effect[AnswerT_co]):
    """An effect that a store executes in one step."""

    __slots__ = ()
