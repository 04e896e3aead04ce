"""Codecs by type of operation; the codecs of a concept are imported when one of them is first used."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from segmented.protocol.base import Operation
    from segmented.protocol.wire import Codec

PREFIX: Final = f"{protocol.__name__}."
WIRES: Final = {
    "dedup": ("dedup.wire", "operator.wire"),
    "pool": ("pool.wire", "pool.orders_wire", "pool.ending_wire", "pool.profile_wire"),
    "shards": ("shards.wire", "operator.wire"),
}
"""Modules with a concept's codecs, for concepts that have more than `operations` or `wire`."""


class Codecs(dict[type["Operation[Any]"], "Codec"]):
    """Codecs by operation; a missing codec is imported with all others of its concept."""

    def __missing__(self, operation: type[Operation[Any]]) -> Codec:
        """Import the codec. Raises KeyError for an operation that Redis does not have."""
        if not operation.__module__.startswith(PREFIX):
            raise KeyError(operation)
        self.load(operation.__module__.removeprefix(PREFIX).partition(".")[0])
        return dict(self)[operation]

    def load(self, concept: str) -> None:
        """Import the codecs of a concept's operations."""
        for name in WIRES.get(concept, (f"{concept}.operations", f"{concept}.wire")):
            if find_spec(PREFIX + name) is not None:
                self.update(getattr(import_module(PREFIX + name), "CODECS", {}))

    def load_all(self) -> None:
        """Import all codecs."""
        for module in pkgutil.iter_modules(protocol.__path__):
            if module.ispkg:
                self.load(module.name)


CODECS: Final = Codecs()


def has_taken(attempt: Operation[object], answer: object) -> bool:
    """Return whether an attempt took what it asked for; otherwise that may be free for other waiters."""
    takes = CODECS[type(attempt)].takes
    return takes is not None and not isinstance(answer, SegmentedError) and bool(takes(answer))
