"""What an answer is in a condition: true if what was asked is done, false if it is refused."""

from __future__ import annotations

from typing import Literal


class Done:
    """An answer that is true."""

    __slots__ = ()

    def __bool__(self) -> Literal[True]:
        """Return True: what was asked is done."""
        return True


class NotDone:
    """An answer that is false."""

    __slots__ = ()

    def __bool__(self) -> Literal[False]:
        """Return False: nothing is done."""
        return False
