"""Lines about orders, kept in parts by order id: in memory while they are few, in a temporary file after that.

All lines of an order are in the same part, in the order in which they came. A reader that handles one part after
another needs memory for one part, however many orders there are.
"""

from __future__ import annotations

import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator
from typing import IO, Final

ORDERS_EACH: Final = 4_096
"""Orders in one part."""
PARTS_MAX: Final = 4_096
LINES_MAX: Final = 16_384
"""Minimum number of lines in memory before they are written to the file."""
CHUNK_LINES: Final = 32
"""Average minimum number of lines that are written in one piece."""
HEAD: Final = "\x00"
"""How a head begins; no order id has a control character."""


class Spill:
    """Lines by order id. A line begins with the id, and a tab if anything follows."""

    def __init__(self, order_count: int) -> None:
        self.part_count = 1
        while self.part_count < PARTS_MAX and self.part_count * ORDERS_EACH < order_count:
            self.part_count *= 2
        self._lines_max = max(LINES_MAX, CHUNK_LINES * self.part_count)
        self._lines: list[list[str]] = [[] for _ in range(self.part_count)]
        self._heads: list[str] = [""] * self.part_count
        self._line_count = 0
        self._file: IO[bytes] | None = None
        self._places: list[array[int]] = [array("q") for _ in range(self.part_count)]
        """Offset and length of each piece in the file, by part."""

    def add(self, head: str, lines: Iterable[str]) -> None:
        """Keep lines; `read` returns each with its head."""
        mask, parts, heads = self.part_count - 1, self._lines, self._heads
        for line in lines:
            part = hash(line.partition("\t")[0]) & mask
            if heads[part] != head:
                heads[part] = head
                parts[part].append(HEAD + head)
            parts[part].append(line)
            self._line_count += 1
        if self._line_count >= self._lines_max:
            self._write()

    def read(self, part: int) -> Iterator[tuple[str, str]]:
        """Yield the lines of a part, each after its head, oldest first."""
        head = ""
        for piece in self._pieces(part):
            for line in piece:
                if line.startswith(HEAD):
                    head = line[1:]
                else:
                    yield head, line

    def _pieces(self, part: int) -> Iterator[list[str]]:
        places = self._places[part]
        for index in range(0, len(places), 2):
            assert self._file is not None  # places are in it
            self._file.seek(places[index])
            yield self._file.read(places[index + 1]).decode(errors="surrogatepass").split("\n")
        yield self._lines[part]

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the spill
            weakref.finalize(self, self._file.close)
        offset = self._file.seek(0, 2)
        for lines, places in zip(self._lines, self._places, strict=True):
            if lines:
                piece = "\n".join(lines).encode(errors="surrogatepass")
                self._file.write(piece)
                places.extend((offset, len(piece)))
                offset += len(piece)
                lines.clear()
        self._line_count = 0
