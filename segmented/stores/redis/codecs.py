"""Every operation's codec, by its type; the codecs of a kind of operation are imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from segmented.operations import Operation
    from segmented.stores.redis.wire import Codec

MODULES: Final = {
    "cache": ("cache",),
    "carts": ("cart",),
    "dedup": ("dedup", "operator"),
    "fair": ("fair",),
    "get_set": ("get_set",),
    "locks": ("lock",),
    "operator": ("operator",),
    "outbox": ("outbox",),
    "pool_audit": ("audit",),
    "pools": ("pool", "order"),
    "quorum": ("vote",),
    "read_write": ("read_write",),
    "reentrant": ("reentrant",),
    "semaphore": ("semaphore",),
    "sequencer": ("sequencer",),
    "shards": ("shard", "operator"),
}
"""Which codec modules the operations of a module have theirs in."""


class Codecs(dict[type["Operation[Any]"], "Codec"]):
    """Codecs by operation; one that is not there yet is imported with all others of its module."""

    def __missing__(self, operation: type[Operation[Any]]) -> Codec:
        """Import the codec. Raises KeyError for an operation that Redis does not have."""
        package, _, module = operation.__module__.rpartition(".")
        if package != "segmented.operations" or module not in MODULES:
            raise KeyError(operation)
        self.load(module)
        return dict(self)[operation]

    def load(self, module: str) -> None:
        """Import the codecs of a module of operations."""
        for name in MODULES[module]:
            self.update(getattr(import_module(f"segmented.stores.redis.{name}_codec"), f"{name.upper()}_CODECS"))

    def load_all(self) -> None:
        """Import every codec there is."""
        for module in MODULES:
            self.load(module)


CODECS: Final = Codecs()
