"""The named points of a worker process at which a test can kill or pause it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from segmented.errors import InvalidInput
from segmented.protocol.codecs import CODECS

POPPED: Final = "popped"
"""A message has left its queue, and is not yet among the unacknowledged ones."""
COMMIT: Final = "commit"
PUBLISH: Final = "publish"
ACK: Final = "ack"
STEPS: Final = (COMMIT, PUBLISH, ACK)
SIDES: Final = ("before", "after")


def operation_names() -> tuple[str, ...]:
    """Return the names of all operations on a store."""
    CODECS.load_all()
    return tuple(sorted(operation.__name__ for operation in CODECS))


def known_points() -> tuple[str, ...]:
    """Return all points, `popped` first."""
    return (POPPED, *(f"{side}:{step}" for step in (*STEPS, *operation_names()) for side in SIDES))


def checked_point(point: str) -> str:
    """Return the point. Raises InvalidInput, which lists all points, if no worker can reach it."""
    known = known_points()
    if point in known:
        return point
    near = get_close_matches(point, known, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    plain = ", ".join(known[: 1 + len(STEPS) * len(SIDES)])
    message = (
        f"there is no point {point!r}{meant}: known are {plain}, and before: and after: with the name of an operation: "
        f"{', '.join(operation_names())}"
    )
    raise InvalidInput(message)
