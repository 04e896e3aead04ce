"""Each database's own statements, by the name of SQLAlchemy's dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.orders.mysql import MySqlStatements
from segmented.orders.postgresql import PostgresStatements
from segmented.orders.sqlite import SqliteStatements

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.orders.statements import Statements

STATEMENTS: Final[dict[str, Callable[[], Statements]]] = {
    "postgresql": PostgresStatements,
    "sqlite": SqliteStatements,
    "mysql": MySqlStatements,
    "mariadb": MySqlStatements,
}
