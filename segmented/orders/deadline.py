"""A psycopg connection with a client-side deadline: the server's own time-outs do not work when it is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from psycopg.abc import PQGen

ReplyT = TypeVar("ReplyT")


class DeadlineConnection(psycopg.Connection[Any]):
    """Gives up waiting for a reply after `reply_timeout` seconds, and closes itself as the reply may still come."""

    reply_timeout: float = 30.0

    def wait(self, gen: PQGen[ReplyT], interval: float = 0.1, timeout: float | None = None) -> ReplyT:
        """Wait for the server, for up to `reply_timeout` seconds. Raises psycopg.OperationalError."""
        try:
            return super().wait(gen, interval, self.reply_timeout if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if self.closed or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.close()
            message = f"no reply within {self.reply_timeout:g} s"
            raise psycopg.OperationalError(message) from error
