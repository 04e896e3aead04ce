"""Loads the Lua files. Lines `-- uses shared/pool.lua` after the first put those shared parts before the rest."""

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
    """Read `lua/<name>.lua`, with the shared parts that it uses."""
    folder = resources.files("segmented.stores.redis") / "lua"
    lines = (folder / f"{name}.lua").read_text(encoding="utf-8").splitlines()
    shebang, rest = lines[0], lines[1:]
    shared: list[str] = []
    while rest[0].startswith("-- uses "):
        shared += (folder / rest.pop(0).removeprefix("-- uses ")).read_text(encoding="utf-8").splitlines()
    text = "\n".join([shebang, *shared, *rest]) + "\n"
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
