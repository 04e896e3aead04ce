"""What a request is to the middlewares, whatever brought it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from segmented.dedup.canonical import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A request, before its body is read."""

    method: str
    """In capitals."""
    path: str
    """Decoded, with the path at which the application is mounted."""
    query: str
    """As it was sent."""
    headers: Mapping[str, tuple[str, ...]]
    """Values by name in small letters."""
    raw: Mapping[str, Any]
    """The ASGI scope, or the WSGI environ: what an authentication in front of this one has put there."""

    def header(self, name: str) -> str:
        """Return a header's value, several joined by commas; "" when there is none."""
        return ", ".join(self.headers.get(name.lower(), ()))


def request_key(key: str, *, method: str, path: str, scope: object = None) -> str:
    """Return the key under which `Dedup.read` and `Dedup.free` find the record of a request.

    `scope` is what the option `scope` gives for it.
    """
    return digest(canonical(["request", scope, method.upper(), path, key], "the scope of a request"))
