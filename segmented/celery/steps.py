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
    """Return the function; None when none is named. Raises InvalidInput for a name that leads nowhere."""
    named = settings().step
    if named is None:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError) as error:
        message = f"SEGMENTED_STEP is {named!r}: {error}"
        raise InvalidInput(message) from error
    except Exception as error:  # whatever a user's module does when it is loaded: Celery would log it and go on
        message = f"SEGMENTED_STEP is {named!r}: its module cannot be loaded: {one_line(repr(error))}"
        raise InvalidInput(message) from error
    if not callable(found):
        message = f"SEGMENTED_STEP is {named!r}: it must name a function, as module:function"
        raise InvalidInput(message)
    checked_step(found)
    return found  # type: ignore[no-any-return]  # what it takes cannot be asked
