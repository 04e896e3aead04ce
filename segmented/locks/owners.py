"""Who an owner of a reentrant lock is: a name that the caller chose, or the current thread or task, asked for by name.

The ids of threads and tasks are random, belong to the thread or task itself, and end with it. Numbers would be given to
a later thread again, and a context variable would be inherited by every task that the owner starts; a fork has ids of
its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from segmented.errors import InvalidInput
from segmented.forks import after_fork_in_child
from segmented.locks.durations import checked_name

Owner = str | Callable[[], str]
"""An owner, or what tells the owner of the moment: `thread_owner`, `task_owner`."""

_threads = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()


def thread_owner() -> str:
    """Return the id of the current thread as an owner: the same for as long as the thread lives, and no other's.

    Not for asyncio: all tasks of a loop are one thread, so they would enter each other's locks. With gevent its patches
    must come before this module is imported; else all greenlets are one thread, too.
    """
    found: str | None = getattr(_threads, "owner", None)
    if found is None:
        found = _threads.owner = f"thread-{uuid4().hex}"
    return found


def task_owner() -> str:
    """Return the id of the current asyncio task as an owner: the same for as long as the task lives, and no other's.

    A task that the owner starts is another owner. Raises InvalidInput outside of a task.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs
        task = None
    if task is None:
        message = "task_owner() is asked for outside of an asyncio task"
        raise InvalidInput(message)
    if task not in _tasks:
        _tasks[task] = f"task-{uuid4().hex}"
    return _tasks[task]


def checked_owner(owner: Owner | None) -> str:
    """Return the owner's name; raises InvalidInput for none, and for one that no key can carry."""
    if owner is None:
        message = "a reentrant lock needs an owner: give a name of your own, thread_owner() or task_owner()"
        raise InvalidInput(message)
    return checked_name(owner() if callable(owner) else owner, "an owner")


def _forget_parents() -> None:
    # The child's only thread is a copy of one of the parent's, which still holds its locks.
    global _threads  # noqa: PLW0603  # the ids of the whole process
    _threads = threading.local()
    _tasks.clear()


after_fork_in_child(_forget_parents)
