"""Logs as JSON, one object a line, for workers and commands: the variable SEGMENTED_LOG_FORMAT is `json`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

OF_EVERY_RECORD: Final = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "data", "taskName"}
)
"""Attributes of every record, and the arguments of a task, which Celery adds; all others are fields of this one."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time, level, logger, message, its fields, and the error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {name: value for name, value in vars(record).items() if name not in OF_EVERY_RECORD}
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"at": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps({**fields, **said}, default=repr, ensure_ascii=False)


def write_json(logger: logging.Logger) -> None:
    """Make the handlers of a logger write JSON."""
    for handler in logger.handlers:
        handler.setFormatter(JsonFormatter())
