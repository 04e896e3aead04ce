"""Copies of the keys of a server in memory, as a replica has them, to put in place when it fails over."""

from collections.abc import Callable
from itertools import count
from typing import Final

from segmented.keys import shard_keys
from segmented.stores.memory import MemoryModel

NUMBERS: Final = count()
"""Of copies, which begin the name of a copied key."""


def replica_of(model: MemoryModel, *skus: str) -> Callable[[], None]:
    """Copy the keys of these pools as they are now; the result puts them in the place of the later ones."""
    patterns = [shard_keys(sku).meta.removesuffix("meta").replace("\\", "\\\\") + "*" for sku in skus]
    number = next(NUMBERS)
    kept = {key: f"replica {number}:{key}" for pattern in patterns for key in _keys(model, pattern)}
    for key, copy in kept.items():
        model.ask("COPY", key, copy)

    def take_over() -> None:
        for pattern in patterns:
            for key in _keys(model, pattern):
                model.ask("DEL", key)
        for key, copy in kept.items():
            model.ask("COPY", copy, key)

    return take_over


def _keys(model: MemoryModel, pattern: str) -> list[str]:
    return [key.decode() for key in model.ask("KEYS", pattern)]
