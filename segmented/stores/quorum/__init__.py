"""Several independent servers as one store, which answers by majority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.stores.quorum.asynchronous import AsyncQuorumStore as AsyncQuorumStore
    from segmented.stores.quorum.store import QuorumStore as QuorumStore

LATE: Final = from_modules(
    {
        "segmented.stores.quorum.asynchronous": "AsyncQuorumStore",
        "segmented.stores.quorum.store": "QuorumStore",
    }
)
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
