"""Tasks and calls as an operator writes them: a task by its name, and its arguments as words."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from celery.app.utils import find_app

from segmented.dedup.celery.settings import OnceSettings
from segmented.dedup.celery.task import Once
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Celery

    from segmented.models.dedup import RecordName
    from segmented.plans.drivers import Store

NAMED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def task_named(name: str, app: str | None = None) -> Once:
    """Return a deduplicated task. `app` is the module of its app, as `celery -A` takes it; default: the task's module.

    Raises InvalidInput if there is no such app or task.
    """
    module = app or name.rpartition(".")[0]
    if not module:
        raise InvalidInput(f"task {name!r} does not name its module: give the module of its Celery app with --app")
    found = _app_named(module)
    found.loader.import_default_modules()
    found.finalize()
    task = found.tasks.get(name)
    if not isinstance(task, Once) or task.once is None:
        known = ", ".join(
            sorted(one for one, it in found.tasks.items() if isinstance(it, Once) and it.once is not None)
        )
        raise InvalidInput(f"app {module!r} has no task {name!r} with base=Once; it has: {known or 'none'}")
    return task


def store_of_app(module: str) -> Store:
    """Return the store of the records of an app. Raises InvalidInput if there is no such app, or it names no store."""
    return OnceSettings(_app_named(module)).get().store


def _app_named(module: str) -> Celery:
    try:
        found: Celery = find_app(module)
    except (ImportError, AttributeError) as error:
        message = f"there is no Celery app in {module!r}: give its module with --app, and run this where it is imported"
        raise InvalidInput(message) from error
    return found


def record_of_call(task: Once, words: Sequence[str], *, message: str = "") -> RecordName:
    """Return the record of a call. A word is JSON, or else a text; one such as `size=5` names its parameter."""
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for word in words:
        match = NAMED.fullmatch(word)
        if match:
            options[match[1]] = _value(match[2])
        else:
            arguments.append(_value(word))
    try:
        key = task.once_key(*arguments, **options)
    except TypeError as error:
        raise InvalidInput(f"task {task.name!r} cannot be called with these arguments: {error}") from error
    return task.once_plan.record_to_show(key, message)


def _value(word: str) -> Any:  # noqa: ANN401  # any JSON
    with suppress(ValueError):
        return json.loads(word)
    return word
