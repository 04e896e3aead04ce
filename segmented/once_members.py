"""How the claims name the key of a deduplication record: an entry is "key", or "key message"."""

from __future__ import annotations


def once_member(key: str) -> str:
    """Return the key without a space, which ends it in an entry, and without a colon, which ends it in a key's name."""
    return key.replace("%", "%25").replace(":", "%3A").replace(" ", "%20")


def once_claimed(entry: str) -> tuple[str, str]:
    """Return the key that an entry of the claims is about, and the message, or ""."""
    member, _, message = entry.partition(" ")
    return member.replace("%20", " ").replace("%3A", ":").replace("%25", "%"), message
