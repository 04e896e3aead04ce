"""Transactions that a lock outlives: who follows one is told before its commit and after its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Follower(Protocol):
    """Whoever wants to know how a transaction goes on."""

    def before_commit(self) -> None:
        """Hear that a commit is about to be sent; raising refuses it."""

    def after_end(self) -> None:
        """Hear that a transaction has ended, by a commit, a rollback or a close."""


class Transaction(Protocol):
    """What is followed."""

    def is_open(self) -> bool:
        """Has a transaction begun and not ended?"""

    def follow(self, follower: Follower) -> None:
        """Tell `follower` from now on."""

    def leave(self, follower: Follower) -> None:
        """Tell it no more."""

    def has_run(self, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run a coroutine to its end, if the end of the transaction is being told where that can be done."""


class HookWatch:
    """Follows a transaction of any other kind, through a hook that is given a function to call at its end."""

    def __init__(self, register: Callable[[Callable[[], None]], object]) -> None:
        """Hand our function to `register` when somebody follows."""
        self._register = register
        self._follower: Follower | None = None
        self._is_over = False

    def is_open(self) -> bool:
        """Has the hook not told the end yet?"""
        return not self._is_over

    def follow(self, follower: Follower) -> None:
        """Register: there is one follower a hook."""
        self._follower = follower
        self._register(self._end)

    def leave(self, _: Follower) -> None:
        """Tell it no more."""
        self._follower = None

    def has_run(self, _: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """No: a hook is called anywhere."""
        return False

    def _end(self) -> None:
        self._is_over = True
        if self._follower is not None:
            self._follower.after_end()
