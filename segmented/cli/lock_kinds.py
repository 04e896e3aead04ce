"""Writes the reference page of the lock kinds from their records (`make docs`)."""

from __future__ import annotations

import sys
from typing import Final

from segmented.protocol.kinds import LOCK_KINDS

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
