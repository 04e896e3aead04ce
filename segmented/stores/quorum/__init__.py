"""Several independent servers as one store, whose answers are those of a majority."""

from segmented.stores.quorum.asynchronous import AsyncQuorumStore
from segmented.stores.quorum.store import QuorumStore

__all__ = ["AsyncQuorumStore", "QuorumStore"]
