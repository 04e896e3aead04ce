"""The kinds of lock: tests and tables of kinds, and the page of all kinds (`make docs`), derive from these records."""

import sys
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock."""

    name: str
    """The kind's name in `segmented lock show` and in the scripts."""
    handle: str
    """The class in `segmented.locks`; the class for asyncio has `Async` before its name."""
    holders: str
    """The holders that it admits, for the page of all kinds."""
    folder: str
    """The folder of its operations and scripts."""
    has_token: bool = True
    """Whether a lease has a fencing token."""
    counts_waiters: bool = False
    """Whether `segmented lock show` knows how many wait."""


def _folder(name: str) -> str:
    return f"segmented/protocol/{name}/"


LOCK_KINDS: Final = (
    Kind("fair", "FairLock", "one at a time, first come, first served", _folder("fair"), counts_waiters=True),
    Kind(
        "get_set",
        "GetSetLock",
        "one at a time, if all clocks agree: the historical algorithm, for study",
        _folder("get_set"),
        has_token=False,
    ),
    Kind("lock", "Lock", "one at a time", _folder("lock")),
    Kind(
        "quorum",
        "QuorumLock",
        "one at a time, by the votes of a majority of independent servers",
        _folder("vote"),
        has_token=False,
    ),
    Kind("read_write", "ReadWriteLock", "many readers, or one writer", _folder("read_write"), counts_waiters=True),
    Kind("reentrant", "ReentrantLock", "one owner at a time, which may acquire it again", _folder("reentrant")),
    Kind("semaphore", "Semaphore", "up to N at a time", _folder("semaphore")),
)
"""All kinds, by name."""
HEAD: Final = """\
# Kinds of lock

Written by `make docs` from the records of the kinds (`LOCK_KINDS`). `segmented lock list`, `show` and
`revoke` know all of these kinds. A name belongs to one kind at a time. Which one fits: [Choose a
lock](../how-to/choose-a-lock.md).

Each class of `segmented.locks` has an asyncio form with `Async` before its name. Waiters are those that `segmented lock
show` counts in a queue.

| kind | class | holders | fencing token | waiters | folder |
| --- | --- | --- | --- | --- | --- |
"""
SAID: Final = {True: "yes", False: "no"}


def page() -> str:
    """Return the page in Markdown."""
    rows = (
        f"| `{kind.name}` | `{kind.handle}` | {kind.holders} | {SAID[kind.has_token]} | {SAID[kind.counts_waiters]} "
        f"| `{kind.folder}` |\n"
        for kind in LOCK_KINDS
    )
    return f"{HEAD}{''.join(rows)}"


if __name__ == "__main__":
    sys.stdout.write(page())
