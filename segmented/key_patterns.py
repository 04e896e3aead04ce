"""Patterns by which an operator finds keys of deduplication again, and what such a key is about."""

from __future__ import annotations

from segmented.once_keys import once_claims, once_keys


def once_pattern(key: str = "") -> str:
    """Return a server's pattern for the claims of every namespace; with a `key`, for its record in every namespace."""
    if not key:
        return once_claims("\n", 0).replace("{\n:0}", "{*}")
    before, after = once_keys("\n", key).record.split("\n")
    for wild in "\\*?[]":
        after = after.replace(wild, f"\\{wild}")
    return f"{before}*{after}"


def once_namespace(found: str) -> str | None:
    """Return the namespace of a key of ours; None for any other key."""
    prefix = once_claims("", 0).partition("{")[0]
    tag, closed, _ = found.removeprefix(prefix + "{").partition("}")
    encoded, colon, _ = tag.rpartition(":")
    if not found.startswith(prefix + "{") or not closed or not colon:
        return None
    return encoded.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
