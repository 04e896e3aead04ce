"""The effect of a server's `maxmemory-policy` on a store: a warning, and no pools unless the user allows them.

A policy other than `noeviction` deletes keys when memory is full. A lock, a cache or a record of `Once` that is deleted
is one that ended early: two holders at most, and a fencing token tells them apart. A deleted segment of a pool is stock
that is gone. Hosted servers begin with `volatile-lru`.
"""

from __future__ import annotations

import logging
from typing import Final

from segmented.errors import InvalidInput

LOGGER: Final = logging.getLogger("segmented.stores")
CURE: Final = "so it takes no pool: set noeviction, or, if its memory cannot fill up, add allow_eviction=yes to the URL"
EARLY: Final = "so a lock or a record may end early: set noeviction"


class Eviction:
    """The eviction policies that one store has found at its first contact with each server."""

    def __init__(self, *, is_allowed: bool = False) -> None:
        """Create a state in which nothing is known; `is_allowed` says that the user knows, and that pools may be kept.

        Raises InvalidInput if that is not a bool.
        """
        if type(is_allowed) is not bool:
            raise InvalidInput(f"allow_eviction is True or False, not {is_allowed!r}")
        self._is_allowed = is_allowed
        self.warning = ""
        """The sentence for users of the server, or an empty text."""
        self.refusal = ""
        """The reason why the store takes no pools, or an empty text."""
        self._has_warned = False

    def note(self, where: str, policy: str) -> None:
        """Note a server's policy, which is empty if the server hides it."""
        if policy == "noeviction" or self._is_allowed:
            return
        server = f"the server at {where}"
        if policy:
            said = f"{server} has maxmemory-policy {policy}, which may evict locks and stock"
            self.refusal, self.warning = f"{said}, {CURE}", f"{said}, {EARLY}"
        elif not self.warning:
            self.warning = f"{server} does not report its maxmemory-policy: make sure that it is noeviction"

    def check(self, operation: object) -> None:
        """Warn once a store; raise InvalidInput for an operation on a pool, if the store takes none."""
        if self.refusal and hasattr(type(operation), "sku"):
            raise InvalidInput(self.refusal)
        if not self._has_warned:
            self._has_warned = True
            LOGGER.warning("%s", self.warning)
