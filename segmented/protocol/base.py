"""Base classes of effects and operations."""

from __future__ import annotations

from typing import Generic, TypeVar

AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Effect(Generic[AnswerT_co]):
    """A request of a plan to its driver; the answer comes back at the `yield`."""

    __slots__ = ()


class Operation(Effect[AnswerT_co]):
    """An effect that a store executes in one step."""

    __slots__ = ()


class Release(Operation[AnswerT_co]):
    """An operation that ends something: it goes first, and ends although its caller is cancelled.

    It gives back what others may wait for, or it says how work ended that is not done again: a confirm that is dropped
    after the customer has paid lets the units be sold again.
    """

    __slots__ = ()
