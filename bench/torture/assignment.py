"""The assignment of a process of contenders."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of one process of contenders, sent to it as one line of JSON."""

    process: int
    """Its number, from 1; no two processes of a run have the same."""
    kind: str
    urls: list[str]
    socket_path: str
    """Path of the resource's socket."""
    names: list[str]
    threads: int
    ttl: float
    seed: int

    def as_json(self) -> str:
        """Return the line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Assignment:
        """Read the line."""
        return cls(**json.loads(line))
