"""The interface of a lease towards its session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

NO_LINK: Final = -1


class Held(ABC):
    """A lease that the caretaker watches over."""

    holder_id: str
    path: str
    fencing_token: int
    watched_link: int = NO_LINK
    """The connection on which its node was last read and is watched."""

    @abstractmethod
    def is_lost_untold(self) -> bool:
        """Return whether the lease is lost and the holder is not notified yet."""

    @abstractmethod
    def tell(self) -> None:
        """Notify the holder that the lease is lost; may run the holder's code."""

    @abstractmethod
    def is_over(self) -> bool:
        """Return whether the lease needs no more care: it is released, or lost and the holder notified."""

    @abstractmethod
    def note_seen(self, link: int) -> None:
        """Record that the node existed, seen on connection `link`."""

    @abstractmethod
    def note_gone(self) -> None:
        """Record that the node no longer exists."""
