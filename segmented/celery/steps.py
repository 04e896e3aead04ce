"""The user's own step for each order, named by SEGMENTED_STEP."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from segmented.celery.current import settings
from segmented.errors import InvalidInput
from segmented.models.submitted import one_line
from segmented.orders.work_terms import checked_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.submitted import BegunOrder


@cache
def step() -> Callable[[BegunOrder], None] | None:
    """Return the function, or None if none is named. Raises InvalidInput for a name that cannot be resolved."""
    named = settings().step
    if named is None:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError) as error:
        message = f"SEGMENTED_STEP is {named!r}: {error}"
        raise InvalidInput(message) from error
    except Exception as error:  # a user's module may raise anything on import; Celery would log it and continue
        message = f"SEGMENTED_STEP is {named!r}: its module cannot be loaded: {one_line(repr(error))}"
        raise InvalidInput(message) from error
    if not callable(found):
        message = f"SEGMENTED_STEP is {named!r}: it must name a function, as module:function"
        raise InvalidInput(message)
    checked_step(found)
    return found  # type: ignore[no-any-return]  # what it takes cannot be asked
