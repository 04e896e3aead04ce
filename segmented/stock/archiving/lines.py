"""The lines of an archive, as docs/reference/archive-file.md describes them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMAT: Final = 1


class LineWriter:
    """Writes lines, counts them and their orders, and computes their digest. Lines are ASCII."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """Create a writer that calls `write` with each line."""
        self._write = write
        self._digest = hashlib.sha256()
        self.line_count = 0
        self.order_count = 0

    def head(self, about: Mapping[str, Any]) -> None:
        """Write the first line: what the archive is."""
        self._line({"record": "archive", "format": FORMAT} | dict(about))

    def record(self, kind: str, name: str, value: object, shard: int | None) -> None:
        """Write one record of a pool or of a shard."""
        self.order_count += kind == "orders"
        self._line({"record": kind} | ({} if shard is None else {"shard": shard}) | {"name": name, "value": value})

    def end(self) -> None:
        """Write the last line: what was written before it."""
        about = {"lines": self.line_count, "orders": self.order_count, "sha256": self._digest.hexdigest()}
        self._line({"record": "end"} | about)

    def _line(self, content: Mapping[str, Any]) -> None:
        line = json.dumps(content, separators=(",", ":"))
        self._digest.update(line.encode() + b"\n")
        self.line_count += 1
        self._write(line)
