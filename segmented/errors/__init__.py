# ruff: noqa: F403  # each error is named once, where it is defined
"""All errors of the library, under one root. The class docstring is the default message."""

from typing import TYPE_CHECKING

from segmented.errors.base import *
from segmented.errors.stock import *

if not TYPE_CHECKING:
    __all__ = [name for name, found in sorted(globals().items()) if isinstance(found, type) and hasattr(found, "args")]
    for _name in __all__:  # messages and pickles name the public place
        globals()[_name].__module__ = __name__

    def __dir__() -> list[str]:
        """Return the names of the errors."""
        return __all__
