"""Operations by which a resource distinguishes the current holder from an overtaken one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segmented.models import Standing
from segmented.protocol.base import Operation

Mode = Literal["exclusive", "shared"]


@dataclass(frozen=True, slots=True)
class CheckSequencer(Operation[Standing]):
    """Return whether the lock is held now, in this mode, by the generation of this token."""

    name: str
    mode: Mode
    token: int


@dataclass(frozen=True, slots=True)
class FencedSet(Operation[Standing]):
    """Write a plain value under `key`, unless it was already written under a higher token."""

    key: str
    value: str
    token: int
