"""Hooks with which a forked child drops its parent's state, on systems that fork (not Windows)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def after_fork_in_child(forget: Callable[[], object]) -> None:
    """Call `forget` in each child that this process forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
