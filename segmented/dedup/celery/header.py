"""What travels with a message: which record it belongs to. A message without it is from a foreign publisher."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

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
    round: int = 0
    """How often it was sent round because the key was taken."""

    def carried(self, headers: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return headers with this one in them."""
        return {**(headers or {}), HEADER: asdict(self)}


def header_of(headers: Mapping[str, Any] | None, message: str) -> OnceHeader | None:
    """Read the header of `message`; None when there is none, or one that cannot be read."""
    found = (headers or {}).get(HEADER)
    if not isinstance(found, dict):
        return None
    try:
        header = OnceHeader(**found)
    except TypeError:
        return None
    return header if header.message == message else None
