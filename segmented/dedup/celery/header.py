"""What travels with a message: which record it belongs to. A message without it is from a foreign publisher."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from segmented.locks.durations import is_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER: Final = "segmented_once"


@dataclass(frozen=True, slots=True)
class OnceHeader:
    """The header of one message."""

    message: str
    """Its task id: a header that was copied to another message says nothing about that one."""
    key: str
    payload_print: str
    follows: str = ""
    """The message whose repeat this is, and whose outcome it is to have."""
    is_claimed: bool = False
    """Did it have the seat of its key when it was published?"""
    is_put_off: bool = False
    """Is it to run by itself once the key is free, and not to be given the outcome of another?"""
    namespace: str = ""
    """Of the publisher's records; "" where the worker's own is meant."""
    round: int = 0
    """How often it was sent round because the key was taken."""

    def carried(self, headers: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return headers with this one in them."""
        return {**(headers or {}), HEADER: asdict(self)}


def header_of(headers: Mapping[str, Any] | None, message: str) -> OnceHeader | None:
    """Read the header of `message`; None when there is none, or one that cannot be read.

    What a newer version has added is passed over, and what an older one did not say is as if it were not so.
    """
    found = (headers or {}).get(HEADER)
    if not isinstance(found, dict) or found.get("message") != message:
        return None
    known = {one.name: found[one.name] for one in fields(OnceHeader) if one.name in found}
    if not all(_is_readable(name, value) for name, value in known.items()):
        return None
    try:
        return OnceHeader(**known)
    except TypeError:  # too little was said
        return None


def _is_readable(name: str, value: object) -> bool:
    match name:
        case "message" | "key":
            return isinstance(value, str) and bool(value)
        case "payload_print" | "follows" | "namespace":
            return isinstance(value, str)
        case "round":
            return is_whole(value) and isinstance(value, int) and value >= 0
    return isinstance(value, bool)
