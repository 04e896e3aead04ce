"""Loads the Lua files, which are in the folders of their concepts.

Lines `-- uses shared/pool.lua` after the first put those shared parts before the rest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """A script's whole text and the digest under which a server caches it."""

    name: str
    text: str
    sha: str


@cache
def load_script(name: str) -> Script:
    """Read `<name>.lua` of any concept, with the shared parts that it uses. Raises FileNotFoundError."""
    top = resources.files("segmented.protocol")
    places = (folder / f"{name}.lua" for folder in top.iterdir())
    found = next((place for place in places if place.is_file()), top / f"{name}.lua")
    lines = found.read_text(encoding="utf-8").splitlines()
    shebang, rest = lines[0], lines[1:]
    shared: list[str] = []
    while rest[0].startswith("-- uses "):
        shared += (top / rest.pop(0).removeprefix("-- uses ")).read_text(encoding="utf-8").splitlines()
    text = "\n".join([shebang, *shared, *rest]) + "\n"
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
