"""A lease, as its session sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

NO_LINK: Final = -1


class Held(ABC):
    """Somebody's lease, to be looked after."""

    holder_id: str
    path: str
    fencing_token: int
    watched_link: int = NO_LINK
    """The connection on which its node was last looked at, and is watched."""

    @abstractmethod
    def is_lost_untold(self) -> bool:
        """Is the lease lost, and the holder not told?"""

    @abstractmethod
    def tell(self) -> None:
        """Tell the holder that the lease is lost; may run the holder's code."""

    @abstractmethod
    def is_over(self) -> bool:
        """Is there nothing left to look after: released, or lost and told?"""

    @abstractmethod
    def note_seen(self, link: int) -> None:
        """Note that the node was there, on connection `link`."""

    @abstractmethod
    def note_gone(self) -> None:
        """Note that the node is gone."""
