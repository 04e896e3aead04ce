"""What an archive can be written to: numbered lines of text, complete or absent."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


BETWEEN: Final = re.compile(r'\\+[tn]|\\*"')
"""Separators of values in a line of an archive: tabs and line ends as JSON writes them, once or twice; and quotes."""


def names_customer(line: str, customer_id: str) -> bool:
    """Return whether a line of an archive names a customer."""
    written = json.dumps(customer_id)[1:-1]
    return written in line and ("\\" in customer_id or '"' in customer_id or written in BETWEEN.split(line))


class ArchiveTarget(ABC):
    """A place for one archive of a pool, or of one pool in each epoch."""

    name: str
    """The place in words, as a later reader finds it; without a password."""

    @abstractmethod
    def check(self) -> None:
        """Raise InvalidInput if the place cannot be written. Changes nothing."""

    @abstractmethod
    def exists(self, sku: str, epoch: int) -> bool:
        """Return whether something that was written as a whole is there already."""

    @abstractmethod
    def lines(self, sku: str, epoch: int) -> Iterator[str]:
        """Yield the lines that are there, without their ends."""

    @abstractmethod
    def writing(self, sku: str, epoch: int) -> AbstractContextManager[Callable[[str], None]]:
        """Open the place, and call what this returns with each line. It is complete when the block ends.

        If the block fails, nothing is there.
        """
