"""The base of the rows that a gate has: work on a connection of its own, in a transaction or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

AnswerT = TypeVar("AnswerT")


class Run(Protocol):
    """Runs work that may run twice, on a connection of its own."""

    def __call__(self, work: Callable[[Connection], AnswerT]) -> AnswerT:
        """Return the work's result."""


class Rows:
    """Rows of one kind. Created by a gate."""

    def __init__(self, begin: str, run: Run) -> None:
        """Create with the database's statement that opens a transaction."""
        self._begin, self._run = begin, run

    def _write(self, work: Callable[[Connection], AnswerT]) -> AnswerT:
        """Do work, which may run twice, in a transaction, and commit it."""

        def whole(connection: Connection) -> AnswerT:
            connection.exec_driver_sql(self._begin)
            answer = work(connection)
            connection.commit()
            return answer

        return self._run(whole)
