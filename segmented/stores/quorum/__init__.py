"""Several independent servers as one store, which answers by majority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.stores.quorum.store import AsyncQuorumStore as AsyncQuorumStore, QuorumStore as QuorumStore

LATE: Final = from_modules({"segmented.stores.quorum.store": "AsyncQuorumStore QuorumStore"})
"""Names that are imported on first use, and their modules."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
