"""Operations by which a resource tells a holder that was overtaken from one that holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segmented.models import Standing
from segmented.protocol.base import Operation

Mode = Literal["exclusive", "shared"]


@dataclass(frozen=True, slots=True)
class CheckSequencer(Operation[Standing]):
    """Tell whether the lock is held now, in this mode, and by the generation of this token."""

    name: str
    mode: Mode
    token: int


@dataclass(frozen=True, slots=True)
class FencedSet(Operation[Standing]):
    """Write a plain value under `key`, unless it was written under a higher token before."""

    key: str
    value: str
    token: int
